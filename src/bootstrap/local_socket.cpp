#include "bootstrap/local_socket.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace tnt {
namespace {

static_assert(max_local_name == sizeof(sockaddr_un{}.sun_path) - 1);

bool with_address(decltype(::connect) call, const FileDescriptor& socket, std::string_view name) {
  if (name.size() > max_local_name) {
    errno = ENAMETOOLONG;
    return false;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const std::size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return call(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) == 0;
}

}  // namespace

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

FileDescriptor local_socket(int flags) { return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)); }

bool bind_local(const FileDescriptor& socket, std::string_view name) { return with_address(::bind, socket, name); }

bool connect_local(const FileDescriptor& socket, std::string_view name) { return with_address(::connect, socket, name); }

bool same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace tnt
