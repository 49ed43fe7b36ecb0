// TCP sockets for ranks that find each other by tcp://host:port.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"

namespace tnt {

struct TcpAddress {
  std::string host;  // a name, or a number of IPv4 or IPv6
  std::uint16_t port = 0;
  bool operator==(const TcpAddress&) const = default;
};

[[nodiscard]] bool is_tcp_address(const std::string& rendezvous);  // begins with tcp://

// "tcp://node1:4711", "tcp://[fe80::1]:4711". Throws TNT_INVALID_ARGUMENT.
[[nodiscard]] TcpAddress parse_tcp_address(const std::string& text);
[[nodiscard]] std::string to_text(const TcpAddress& address);  // "node1:4711", "[fe80::1]:4711"

// Listens on all interfaces. port 0: one that is free. Throws TNT_SYSTEM.
[[nodiscard]] FileDescriptor listen_on_tcp(std::uint16_t port, int backlog);
[[nodiscard]] std::uint16_t port_of(const FileDescriptor& listener);

// Tries until the deadline: the other side may not listen yet. Returns none then. Throws TNT_SYSTEM if the name of the host is
// not known.
[[nodiscard]] FileDescriptor connect_by_tcp(const TcpAddress& to, const Deadline& deadline);

// Begins to connect to a host that is given as a number, and does not wait: poll says when the connection can be written to, or
// has failed. None, and errno, if it has failed already.
[[nodiscard]] FileDescriptor begin_to_connect(const TcpAddress& to);
// Of such a connection, after poll: 0, or the errno of its failure. ECONNREFUSED: the host answers, and nobody listens there.
[[nodiscard]] int connect_error(const FileDescriptor& socket);

// The address of the other end as a number; "" if it is on this host.
[[nodiscard]] std::string host_of_peer(const FileDescriptor& connection);

}  // namespace tnt
