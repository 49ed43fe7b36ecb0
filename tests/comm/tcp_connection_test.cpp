// How a TCP connection of this host ends.
#include "comm/tcp/tcp_connection.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>

#include "base/clock.hpp"
#include "bootstrap/tcp_socket.hpp"

namespace tnt {
namespace {

TEST(TcpConnection, WhatALostPeerHasNotTakenIsNotWaitedFor) {
  const FileDescriptor listener = listen_on_tcp(0, 1);
  TcpConnection connection(connect_by_tcp({"localhost", port_of(listener)}, Deadline(5)), 1);
  FileDescriptor(::accept(listener.get(), nullptr, nullptr));  // has ended before the message comes
  connection.send(std::make_shared<TcpTransfer>(), 0);
  connection.end_sending();
  const Deadline deadline(20);
  while (connection.closing()) ASSERT_FALSE(deadline.passed());
}

}  // namespace
}  // namespace tnt
