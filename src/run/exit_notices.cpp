#include "run/meeting_notices.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

namespace tnt::run {
namespace {

constexpr int tries = 600;  // 0.1 s each: a rank 0 that does not listen then has joined already
constexpr const char* refusal = "error rank 0 exited with code 0 before the ranks had joined\n";

std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

FileDescriptor new_socket() { return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool is_same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

void MeetingNotices::on_exit(int rank) {
  if (rank == 0) return listen();
  lines_.push_back(fmt::format("tarantella 1 {} exit {} 0\n", token_, rank));
  tries_left_ = tries;
}

void MeetingNotices::deliver() {
  if (listener_) answer();
  std::erase_if(lines_, [this](const std::string& line) { return send(line); });
  if (--tries_left_ <= 0) lines_.clear();
}

void MeetingNotices::listen() {
  lines_.clear();
  const auto [address, length] = address_of(name_);
  listener_ = new_socket();
  const bool listens = ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                       ::listen(listener_.get(), SOMAXCONN) == 0;
  if (!listens) listener_ = FileDescriptor();  // a child of rank 0 still listens there, and answers itself
}

void MeetingNotices::answer() {
  while (true) {
    FileDescriptor rank(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!rank) return;
    if (!is_same_user(rank)) continue;
    (void)::send(rank.get(), refusal, std::strlen(refusal), MSG_NOSIGNAL);
    (void)::shutdown(rank.get(), SHUT_WR);
    answered_.push_back(std::move(rank));
  }
}

bool MeetingNotices::send(const std::string& line) const {
  const auto [address, length] = address_of(name_);
  const FileDescriptor socket = new_socket();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return false;
  if (!is_same_user(socket)) return false;  // it has taken the name, and must not learn the token
  return ::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

}  // namespace tnt::run
