#include "bootstrap/tcp_socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include "comm/tcp/tcp_connection.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::string_view scheme = "tcp://";
constexpr int attempt_ms = 2000;  // for one address of a host
constexpr auto between_attempts = std::chrono::milliseconds(50);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// flags: of getaddrinfo. *result: its error; 0 if there is none.
Addresses resolve(const TcpAddress& address, int flags, int* result) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  *result = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  return {*result == 0 ? found : nullptr, ::freeaddrinfo};
}

FileDescriptor begin(const addrinfo& address) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  return ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 || errno == EINPROGRESS ? std::move(socket)
                                                                                                   : FileDescriptor();
}

// Connects without waiting longer than an attempt may take.
FileDescriptor attempt(const addrinfo& address) {
  FileDescriptor socket = begin(address);
  pollfd wait{socket.get(), POLLOUT, 0};
  if (!socket || ::poll(&wait, 1, attempt_ms) != 1 || connect_error(socket) != 0) return {};
  return socket;
}

bool same_host(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

bool is_tcp_address(const std::string& rendezvous) { return rendezvous.starts_with(scheme); }

TcpAddress parse_tcp_address(const std::string& text) {
  const auto refuse = [&]() { fail(TNT_INVALID_ARGUMENT, "rendezvous {}: expected tcp://HOST:PORT", text); };
  const std::string_view address = std::string_view(text).substr(std::min(scheme.size(), text.size()));
  const std::size_t colon = address.rfind(':');
  if (!is_tcp_address(text) || colon == std::string_view::npos) refuse();
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string_view digits = address.substr(colon + 1);
  TcpAddress result{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  const bool is_blank = std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' '; });
  if (host.empty() || error != std::errc() || end != digits.data() + digits.size() || result.port == 0 || is_blank) refuse();
  return result;
}

std::string to_text(const TcpAddress& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

FileDescriptor listen_on_tcp(std::uint16_t port, int backlog) {
  const auto listen_in = [&](int family) -> FileDescriptor {
    FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) return {};
    sockaddr_storage any{};
    socklen_t length = sizeof(sockaddr_in);
    if (family == AF_INET6) {  // for IPv4 as well
      if (::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) return {};
      auto& address = reinterpret_cast<sockaddr_in6&>(any);
      address.sin6_family = AF_INET6;
      address.sin6_addr = in6addr_any;
      address.sin6_port = htons(port);
      length = sizeof(address);
    } else {
      auto& address = reinterpret_cast<sockaddr_in&>(any);
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_ANY);
      address.sin_port = htons(port);
    }
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), length) != 0) return {};
    return ::listen(socket.get(), backlog) == 0 ? std::move(socket) : FileDescriptor();
  };
  FileDescriptor listener = listen_in(AF_INET6);
  if (!listener) listener = listen_in(AF_INET);  // a host may have no IPv6
  if (!listener && port == 0) fail_errno("cannot listen on any TCP port");
  if (!listener) fail_errno(fmt::format("rank 0 cannot listen on TCP port {} (is TNT_RANK=0 set for two processes?)", port));
  return listener;
}

std::uint16_t port_of(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail_errno("cannot read a TCP port");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

FileDescriptor connect_by_tcp(const TcpAddress& to, const Deadline& deadline) {
  int result = 0;
  const Addresses addresses = resolve(to, AI_ADDRCONFIG, &result);
  if (result != 0) fail(TNT_SYSTEM, "cannot find the host {} of rank 0: {}", to.host, ::gai_strerror(result));
  while (true) {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      if (FileDescriptor connection = attempt(*one)) return connection;
      if (deadline.passed()) return {};
    }
    if (deadline.passed()) return {};
    std::this_thread::sleep_for(between_attempts);
  }
}

FileDescriptor begin_to_connect(const TcpAddress& to) {
  int result = 0;
  const Addresses addresses = resolve(to, AI_NUMERICHOST, &result);
  if (result == 0) return begin(*addresses);
  errno = EADDRNOTAVAIL;
  return {};
}

int connect_error(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::string host_of_peer(const FileDescriptor& connection) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof(here);
  socklen_t there_length = sizeof(there);
  const std::string host = peer_host(connection.get());
  if (host.empty() || ::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&here), &here_length) != 0 ||
      ::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&there), &there_length) != 0) {
    fail_errno("cannot read the address of a TCP connection");
  }
  return same_host(here, there) ? "" : host;
}

}  // namespace tnt
