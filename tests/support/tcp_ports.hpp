// A rendezvous by TCP for tests on this host.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace tnt::testing {

// A port that is free now: the system gives no other program the same one soon.
inline std::string tcp_rendezvous() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (::bind(socket, any, length) != 0 || ::getsockname(socket, any, &length) != 0) {
    throw std::runtime_error("no port is free");
  }
  (void)::close(socket);
  return "tcp://localhost:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace tnt::testing
