#include "bootstrap/tcp_socket.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "common/error.hpp"

namespace tnt {
namespace {

TEST(TcpAddress, IsAHostAndAPort) {
  EXPECT_EQ(parse_tcp_address("tcp://node-1.cluster:4711"), (TcpAddress{"node-1.cluster", 4711}));
  EXPECT_EQ(parse_tcp_address("tcp://192.168.1.2:65535"), (TcpAddress{"192.168.1.2", 65535}));
  EXPECT_EQ(parse_tcp_address("tcp://[fe80::1]:1"), (TcpAddress{"fe80::1", 1}));
  EXPECT_EQ(to_text({"fe80::1", 1}), "[fe80::1]:1");
  EXPECT_EQ(to_text({"node", 1}), "node:1");
}

TEST(TcpAddress, OtherTextIsRefused) {
  for (const char* text : {"", "tcp", "tcp://", "tcp://host", "tcp://host:", "tcp://:4711", "tcp://host:0", "tcp://host:65536",
                           "tcp://host:47x", "tcp://host:-1", "tcp://a b:4711", "udp://host:4711", "host:4711"}) {
    try {
      (void)parse_tcp_address(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
      EXPECT_EQ(std::string(error.what()), std::string("rendezvous ") + text + ": expected tcp://HOST:PORT");
    }
  }
  EXPECT_FALSE(is_tcp_address("tarantella-0123"));
  EXPECT_TRUE(is_tcp_address("tcp://nonsense"));
}

TEST(TcpSocket, ConnectsToAListenerOfThisHost) {
  const FileDescriptor listener = listen_on_tcp(0, 1);
  const FileDescriptor connection = connect_by_tcp({"localhost", port_of(listener)}, Deadline(5));
  ASSERT_TRUE(connection);
  EXPECT_EQ(host_of_peer(connection), "");
}

TEST(TcpSocket, GivesUpAtTheDeadline) {
  const std::uint16_t port = port_of(listen_on_tcp(0, 1));  // nobody listens there any more
  EXPECT_FALSE(connect_by_tcp({"localhost", port}, Deadline(0.2)));
}

TEST(TcpSocket, AnUnknownHostIsNamed) {
  try {
    (void)connect_by_tcp({"no-such-host.invalid", 4711}, Deadline(0.2));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_NE(std::string(error.what()).find("no-such-host.invalid"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tnt
