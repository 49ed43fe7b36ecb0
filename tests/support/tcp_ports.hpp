// A rendezvous by TCP for tests on this host.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>

namespace tnt::testing {

// A port that is free now, below those that the system gives to connections of tests that run beside this one.
inline std::string tcp_rendezvous() {
  std::random_device random;
  std::uniform_int_distribution<std::uint16_t> ports(10'000, 32'000);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(ports(random));
    const bool is_free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    (void)::close(socket);
    if (is_free) return "tcp://localhost:" + std::to_string(ntohs(address.sin_port));
  }
  throw std::runtime_error("no port is free");
}

}  // namespace tnt::testing
