// Messages over TCP connections of this host: order, sizes, early and late receives, and ends.
#include "comm/tcp/tcp_network.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t bytes, int seed) {
  Bytes result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed)) % 251);
  return result;
}

// Two networks of two ranks in this process.
class TcpNetworkTest : public ::testing::Test {
 protected:
  TcpNetworkTest() {
    const FileDescriptor listener = listen_on_tcp(0, 1);
    std::vector<FileDescriptor> of_rank_0(2);
    std::vector<FileDescriptor> of_rank_1(2);
    of_rank_1[0] = connect_by_tcp({"localhost", port_of(listener)}, Deadline(5));
    of_rank_0[1] = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
    ranks.push_back(std::make_unique<TcpNetwork>(0, std::move(of_rank_0)));
    ranks.push_back(std::make_unique<TcpNetwork>(1, std::move(of_rank_1)));
  }

  std::unique_ptr<Request> send(int from, int to, int tag, const Bytes& data) {
    const auto memory = std::make_shared<Bytes>(data);
    return ranks[static_cast<std::size_t>(from)]->isend(memory->data(), memory->size(), to, tag, memory);
  }
  struct Receive {
    std::shared_ptr<Bytes> memory;
    std::unique_ptr<Request> request;
  };
  Receive receive(int at, int from, int tag, std::size_t bytes) {
    const auto memory = std::make_shared<Bytes>(bytes);
    return {memory, ranks[static_cast<std::size_t>(at)]->irecv(memory->data(), bytes, from, tag, memory)};
  }
  // The sides make progress in turn, as ranks that wait do.
  static void complete(Request& one, Request& other) {
    const Deadline deadline(20);
    while (!(static_cast<int>(one.test()) & static_cast<int>(other.test()))) ASSERT_FALSE(deadline.passed());
  }
  static void complete(Request& one) { complete(one, one); }

  std::vector<std::unique_ptr<TcpNetwork>> ranks;
};

constexpr std::size_t sizes[] = {0, 1, 4096, 65'535, 65'536, 65'552, 3'000'001};

TEST_F(TcpNetworkTest, BringsEverySize) {
  for (const std::size_t bytes : sizes) {
    const auto to = receive(1, 0, 7, bytes);
    const auto from = send(0, 1, 7, pattern(bytes, 1));
    complete(*from, *to.request);
    EXPECT_EQ(*to.memory, pattern(bytes, 1)) << bytes;
  }
}

TEST_F(TcpNetworkTest, AMessageMayComeBeforeItsReceive) {
  for (const std::size_t bytes : sizes) {
    const auto from = send(0, 1, 7, pattern(bytes, 1));
    const auto first = send(0, 1, 8, pattern(3, 2));
    const auto other = receive(1, 0, 8, 3);
    complete(*first, *other.request);  // so the first message is here, or at least its beginning
    const auto to = receive(1, 0, 7, bytes);
    complete(*from, *to.request);
    EXPECT_EQ(*to.memory, pattern(bytes, 1)) << bytes;
  }
}

TEST_F(TcpNetworkTest, KeepsTheOrderOfATag) {
  std::vector<std::unique_ptr<Request>> sent;
  for (int i = 0; i < 40; ++i) sent.push_back(send(0, 1, i % 2, pattern(static_cast<std::size_t>(i) * 5000, i)));
  for (const int tag : {1, 0}) {
    for (int i = tag; i < 40; i += 2) {
      const auto to = receive(1, 0, tag, static_cast<std::size_t>(i) * 5000);
      complete(*sent[static_cast<std::size_t>(i)], *to.request);
      EXPECT_EQ(*to.memory, pattern(static_cast<std::size_t>(i) * 5000, i));
    }
  }
}

TEST_F(TcpNetworkTest, AReceiveForAnySenderTakesOneMessage) {
  const auto any = receive(1, any_rank, 3, 10);
  const auto from = send(0, 1, 3, pattern(10, 4));
  complete(*from, *any.request);
  EXPECT_EQ(*any.memory, pattern(10, 4));
  const auto early = send(0, 1, 3, pattern(10, 5));
  const auto later = receive(1, any_rank, 3, 10);
  complete(*early, *later.request);
  EXPECT_EQ(*later.memory, pattern(10, 5));
}

TEST_F(TcpNetworkTest, ARankMaySendToItself) {
  const auto from = send(1, 1, 3, pattern(10, 4));
  const auto to = receive(1, 1, 3, 10);
  complete(*from, *to.request);
  EXPECT_EQ(*to.memory, pattern(10, 4));
}

TEST_F(TcpNetworkTest, ACancelledReceiveTakesNothing) {
  { const auto given_up = receive(1, 0, 3, 10); }
  const auto to = receive(1, 0, 3, 10);
  const auto from = send(0, 1, 3, pattern(10, 4));
  complete(*from, *to.request);
  EXPECT_EQ(*to.memory, pattern(10, 4));
}

TEST_F(TcpNetworkTest, ALongerMessageThanItsReceiveIsAnError) {
  const auto to = receive(1, 0, 3, 9);
  const auto from = send(0, 1, 3, pattern(10, 4));
  EXPECT_THROW(complete(*to.request), Error);
}

TEST_F(TcpNetworkTest, WhatWasSentArrivesAfterTheEndOfTheSender) {
  const auto unread = send(1, 0, 9, pattern(100'000, 1));  // which the sender leaves unread
  EXPECT_FALSE(ranks[1]->lost(0));
  auto from = send(0, 1, 3, pattern(2'000'000, 4));
  const auto to = receive(1, 0, 3, 2'000'000);
  std::thread end([&] { ranks[0].reset(); });
  complete(*to.request);
  end.join();
  EXPECT_EQ(*to.memory, pattern(2'000'000, 4));
  const Deadline deadline(20);
  while (!ranks[1]->lost(0)) ASSERT_FALSE(deadline.passed());
  const auto nowhere = send(1, 0, 3, pattern(10, 4));
  complete(*nowhere);  // is dropped
}

}  // namespace
}  // namespace tnt
