// How many messages a collective takes before its data, and who is named when a rank does not come.
#include "comm/network/collective_handshake.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <thread>

#include "comm/network/network_communicator.hpp"
#include "support/fake_network.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::common_error;

class HandshakeTest : public ::testing::TestWithParam<int> {
 protected:
  // The messages of all ranks for one call of each, without those that say that a rank leaves.
  [[nodiscard]] std::size_t messages(const testing::Body& body, bool one_node = false) const {
    const auto hub = std::make_shared<testing::FakeHub>(ranks, 10);
    std::vector<std::unique_ptr<NetworkCommunicator>> all;
    for (int rank = 0; rank < ranks; ++rank) {
      auto world = std::make_shared<NetworkWorld>(std::make_shared<testing::FakeNetwork>(hub, rank));
      if (one_node) world->set_nodes(std::vector<int>(n, 0));
      all.push_back(std::make_unique<NetworkCommunicator>(std::move(world)));
    }
    std::vector<std::thread> threads;
    for (auto& comm : all) threads.emplace_back([&body, &comm] { body(*comm); });
    for (auto& thread : threads) thread.join();
    return hub->messages();
  }
  const int ranks = GetParam();
  const std::size_t n = static_cast<std::size_t>(ranks);
  const std::size_t rounds = std::bit_width(n - 1);  // the logarithm of n, rounded up
};

void all_reduce(Communicator& comm, std::vector<float>& data) {
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
  comm.all_reduce(FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
}

TEST_P(HandshakeTest, ABarrierTakesTheLogarithmOfRanks) {
  EXPECT_EQ(messages([](Communicator& comm) { comm.barrier(call()); }), n * rounds);
}

TEST_P(HandshakeTest, SoDoesASumOfAFewNumbers) {
  const std::size_t sent = messages([this](Communicator& comm) {
    std::vector<float> data(64, static_cast<float>(comm.rank()));
    all_reduce(comm, data);
    EXPECT_EQ(data, std::vector<float>(64, static_cast<float>(ranks * (ranks - 1) / 2)));
  });
  EXPECT_EQ(sent, n * rounds);
}

// A header from each rank, and the messages of the algorithm: to all others twice; or those of doubling, or of halving and
// doubling, and two for each rank beyond a power of two.
TEST_P(HandshakeTest, LargeDataHasOneMessageMore) {
  const auto sent_by = [&](AllReduceAlgorithm algorithm) {
    return messages([algorithm](Communicator& comm) {
      std::vector<float> data(9000);  // one chunk
      dynamic_cast<NetworkCommunicator&>(comm).force({.all_reduce = algorithm});
      all_reduce(comm, data);
    });
  };
  if (ranks == 1) {
    EXPECT_EQ(sent_by(AllReduceAlgorithm::direct), 0U);
    return;
  }
  const std::size_t places = std::bit_floor(n);
  const std::size_t of_doubling = places * (static_cast<std::size_t>(std::bit_width(places)) - 1);
  EXPECT_EQ(sent_by(AllReduceAlgorithm::direct), n + 2 * n * (n - 1));
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling), n + of_doubling + 2 * (n - places));
  EXPECT_EQ(sent_by(AllReduceAlgorithm::halving), n + 2 * of_doubling + 2 * (n - places));
}

// A page and its header are longer than what the network sends unasked on a node.
TEST_P(HandshakeTest, APageIsTwoMessagesOnANodeAndOneBetweenNodes) {
  const auto sent_by = [&](AllReduceAlgorithm algorithm, bool one_node) {
    return messages(
        [algorithm](Communicator& comm) {
          std::vector<float> data(1024);
          dynamic_cast<NetworkCommunicator&>(comm).force({.all_reduce = algorithm});
          all_reduce(comm, data);
        },
        one_node);
  };
  if (ranks == 1) return;
  const std::size_t places = std::bit_floor(n);
  const std::size_t of_doubling = places * (static_cast<std::size_t>(std::bit_width(places)) - 1) + 2 * (n - places);
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling, true), n + 2 * of_doubling);
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling, false), n + of_doubling);
  if (ranks > 4) return;  // more gather in rounds
  EXPECT_EQ(sent_by(AllReduceAlgorithm::gather, true), 2 * n * (n - 1));
  EXPECT_EQ(sent_by(AllReduceAlgorithm::gather, false), n * (n - 1));
}

// A message down each edge of the tree, and one header from each rank.
TEST_P(HandshakeTest, ABroadcastHasOneMessageForEachReceiverAndChunk) {
  const std::size_t sent = messages([](Communicator& comm) {
    std::vector<float> data(8000);  // one chunk
    comm.broadcast(data.data(), data.data(), data.size(), TNT_FLOAT32, 0, call());
  });
  EXPECT_EQ(sent, ranks == 1 ? 0 : n + n - 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks, HandshakeTest, ::testing::Values(1, 2, 3, 5, 8, 13));

TEST(HandshakeFailure, OnlyTheRankThatDidNotComeIsNamed) {
  for (const int absent : {0, 3, 6}) {
    const std::string message = common_error(7, TNT_TIMEOUT, [absent](Communicator& comm) {
      comm.barrier(call());
      if (comm.rank() == absent) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      comm.barrier({.timeout = 0.3});
    });
    EXPECT_EQ(message.find(fmt::format("rank {} did not arrive within 0.3 s while rank ", absent)), 0U) << message;
  }
}

TEST(HandshakeFailure, WhoWaitsInAnotherCommunicatorIsNamed) {
  const std::string message = common_error(3, TNT_TIMEOUT, [](Communicator& comm) {
    const auto other = comm.split(0, 0, call());
    (comm.rank() == 2 ? *other : comm).barrier({.timeout = comm.rank() == 2 ? 5.0 : 0.3});
  });
  EXPECT_EQ(message.find("rank 2 did not arrive within 0.3 s while rank "), 0U) << message;
}

// Far from its own neighbours too: every rank learns both calls.
TEST(HandshakeFailure, AnotherCallIsFoundWhereverItIs) {
  for (const int odd : {0, 4, 8}) {
    const std::string message = common_error(9, TNT_MISMATCH, [odd](Communicator& comm) {
      std::vector<float> data(comm.rank() == odd ? 3 : 16'000);
      all_reduce(comm, data);
    });
    EXPECT_NE(message.find(fmt::format("rank {} called all_reduce sum of 3 float32", odd)), std::string::npos) << message;
    EXPECT_NE(message.find("called all_reduce sum of 16000 float32"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tnt
