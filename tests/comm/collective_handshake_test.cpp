// How many messages a collective takes before its data, and who is named when a rank does not come.
#include "comm/network/messages/collective_handshake.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/network/communicator.hpp"
#include "support/collectives.hpp"
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
    return testing::run_over_network(ranks, one_node, body);
  }
  const int ranks = GetParam();
  const std::size_t n = static_cast<std::size_t>(ranks);
  const std::size_t rounds = std::bit_width(n - 1);  // the logarithm of n, rounded up
};

void all_reduce(Communicator& comm, std::vector<float>& data) {
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
  all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
}

TEST_P(HandshakeTest, ABarrierTakesTheLogarithmOfRanks) {
  EXPECT_EQ(messages([](Communicator& comm) { barrier(comm, call()); }), n * rounds);
}

TEST_P(HandshakeTest, SoDoesASumOfAFewNumbers) {
  const std::size_t sent = messages([this](Communicator& comm) {
    std::vector<float> data(64, static_cast<float>(comm.rank()));
    all_reduce(comm, data);
    EXPECT_EQ(data, std::vector<float>(64, static_cast<float>(ranks * (ranks - 1) / 2)));
  });
  EXPECT_EQ(sent, n * rounds);
}

// The messages of the algorithm: to all others twice; or those of doubling, or of halving and doubling, and two for each rank
// beyond a power of two. A header from each rank is one of its own, where the messages do not carry it as those of doubling.
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
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling), of_doubling + 2 * (n - places));
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
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling, true), 2 * of_doubling);
  EXPECT_EQ(sent_by(AllReduceAlgorithm::doubling, false), of_doubling);
  if (ranks > 4) return;  // more gather in rounds
  EXPECT_EQ(sent_by(AllReduceAlgorithm::gather, true), 2 * n * (n - 1));
  EXPECT_EQ(sent_by(AllReduceAlgorithm::gather, false), n * (n - 1));
}

// A message down each edge of the tree, and one header from each rank.
TEST_P(HandshakeTest, ABroadcastHasOneMessageForEachReceiverAndChunk) {
  const std::size_t sent = messages([](Communicator& comm) {
    std::vector<float> data(8000);  // one chunk
    broadcast(comm, data.data(), data.data(), data.size(), TNT_FLOAT32, 0, call());
  });
  EXPECT_EQ(sent, ranks == 1 ? 0 : n + n - 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks, HandshakeTest, ::testing::Values(1, 2, 3, 5, 8, 13));

TEST(HandshakeFailure, OnlyTheRankThatDidNotComeIsNamed) {
  for (const int absent : {0, 3, 6}) {
    const std::string message = common_error(7, TNT_TIMEOUT, [absent](Communicator& comm) {
      barrier(comm, call());
      if (comm.rank() == absent) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      barrier(comm, {.timeout = 0.3});
    });
    EXPECT_EQ(message.find(fmt::format("rank {} did not arrive within 0.3 s while rank ", absent)), 0U) << message;
  }
}

TEST(HandshakeFailure, WhoWaitsInAnotherCommunicatorIsNamed) {
  const std::string message = common_error(3, TNT_TIMEOUT, [](Communicator& comm) {
    const auto other = comm.split(0, 0, call());
    barrier(comm.rank() == 2 ? *other : comm, {.timeout = comm.rank() == 2 ? 5.0 : 0.3});
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

// The ranks that double tell their neighbours nothing: they hear of other calls from those that make them.
TEST(HandshakeFailure, AnotherCallBesideRecursiveDoublingIsFound) {
  using Act = void (*)(Communicator&);
  const std::vector<std::pair<std::string, Act>> others{
      {"barrier", [](Communicator& comm) { barrier(comm, call()); }},
      {"all_reduce sum of 90000 float32",
       [](Communicator& comm) {
         std::vector<float> data(90'000);
         all_reduce(comm, data);
       }},
      {"all_reduce sum of 7 float32",
       [](Communicator& comm) {
         std::vector<float> data(7);
         all_reduce(comm, data);
       }},
      {"reduce sum of 500 float32",
       [](Communicator& comm) {
         std::vector<float> data(500);
         reduce(comm, data.data(), data.data(), data.size(), TNT_FLOAT32, TNT_SUM, 0, call());
       }},
      {"broadcast of 9000 float32",
       [](Communicator& comm) {
         std::vector<float> data(9000);
         broadcast(comm, data.data(), data.data(), data.size(), TNT_FLOAT32, comm.rank(), call());
       }},
  };
  for (const auto& [ranks, odd] : {std::pair{2, 1}, {3, 0}, {9, 4}}) {
    for (const auto& [name, act] : others) {
      const std::string message = common_error(ranks, TNT_MISMATCH, [&, odd = odd, act = act](Communicator& comm) {
        dynamic_cast<NetworkCommunicator&>(comm).force({.all_reduce = AllReduceAlgorithm::doubling});
        std::vector<float> data(500);
        for (int i = 0; i < 3; ++i) all_reduce(comm, data);
        comm.rank() == odd ? act(comm) : all_reduce(comm, data);
      });
      EXPECT_NE(message.find(fmt::format("rank {} called {}", odd, name)), std::string::npos) << message;
      EXPECT_NE(message.find("called all_reduce sum of 500 float32"), std::string::npos) << message;
    }
  }
}

// Ranks that are ahead tell their next call while others still double.
TEST(Handshake, CallsOfAllKindsFollowEachOther) {
  const std::array algorithms{AllReduceAlgorithm::gather, AllReduceAlgorithm::doubling, AllReduceAlgorithm::direct,
                              AllReduceAlgorithm::halving};
  for (const int ranks : {2, 3, 5, 8}) {
    testing::run_threads(ranks, [ranks, &algorithms](Communicator& comm) {
      std::mt19937 same(7);
      std::mt19937 own(static_cast<unsigned>(comm.rank()));
      for (int i = 0; i < 150; ++i) {
        dynamic_cast<NetworkCommunicator&>(comm).force({.all_reduce = algorithms[same() % algorithms.size()]});
        const std::size_t count = 1 + same() % 2500;
        const auto kind = same() % 4;
        if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
        std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
        if (kind == 0) {
          barrier(comm, call());
        } else if (kind == 1) {
          const int root = static_cast<int>(count) % ranks;
          broadcast(comm, data.data(), data.data(), count, TNT_FLOAT32, root, call());
          ASSERT_EQ(data, std::vector<float>(count, static_cast<float>(root + 1))) << "call " << i;
        } else {
          all_reduce(comm, data);
          ASSERT_EQ(data, std::vector<float>(count, static_cast<float>(ranks * (ranks + 1) / 2))) << "call " << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace tnt
