// The measured borders of recursive doubling: equal on all ranks, and without effect on results.
#include "comm/network/choice.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/fake_network.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;

constexpr std::size_t kib = 1024;

AllReduceAlgorithm choice(std::size_t members, std::size_t bytes, std::optional<DoublingRange> measured) {
  return choose_all_reduce(members, false, bytes, measured);
}

TEST(DoublingRange, IsTakenBetweenManyNodes) {
  EXPECT_EQ(choice(64, 4 * kib, std::nullopt), AllReduceAlgorithm::doubling);
  EXPECT_EQ(choice(64, 8 * kib, std::nullopt), AllReduceAlgorithm::halving);
  EXPECT_EQ(choice(64, 8 * kib, DoublingRange{kib, 16 * kib}), AllReduceAlgorithm::doubling);
  EXPECT_EQ(choice(64, 2 * kib, DoublingRange{256, kib}), AllReduceAlgorithm::halving);
  EXPECT_EQ(choice(4, 8 * kib, std::nullopt), AllReduceAlgorithm::doubling);
  EXPECT_EQ(choice(4, 8 * kib, DoublingRange{256, kib}), AllReduceAlgorithm::direct);
  EXPECT_EQ(choice(4, 2 * kib, std::nullopt), AllReduceAlgorithm::gather);
  EXPECT_EQ(choice(4, kib, DoublingRange{512, kib}), AllReduceAlgorithm::doubling);
  EXPECT_EQ(choice(64, kib, DoublingRange{kib, 256}), AllReduceAlgorithm::gather);
  EXPECT_EQ(choose_all_reduce(64, true, 8 * kib, DoublingRange{256, kib}), AllReduceAlgorithm::doubling);
}

void run(int ranks, bool one_node, const std::function<void(NetworkCommunicator&)>& body) {
  (void)testing::run_over_network(ranks, one_node, body);
}

TEST(DoublingRange, IsEqualOnAllRanksAndChangesNoSum) {
  run(9, false, [](NetworkCommunicator& comm) {
    const auto measured = measure_doubling(comm, testing::default_timeout);
    ASSERT_TRUE(measured);
    EXPECT_GE(measured->above, 256U);
    EXPECT_LE(measured->above, 4 * kib);
    EXPECT_GE(measured->up_to, 256U);
    EXPECT_LE(measured->up_to, 32 * kib);
    const std::array<std::uint64_t, 2> own{measured->above, measured->up_to};
    std::vector<std::array<std::uint64_t, 2>> ranges(9);
    all_gather(comm, own.data(), ranges.data(), 2, TNT_UINT64, call());
    EXPECT_EQ(ranges, std::vector(9, own));
    for (const std::size_t count : {64, 256, 1024, 8192}) {
      std::vector<testing::Array> in;
      for (unsigned rank = 0; rank < 9; ++rank) in.push_back(testing::exact_values(TNT_FLOAT32, count, rank));
      for (const DoublingRange bytes : {DoublingRange{0, 0}, *measured, {0, 64 * kib}, {4 * kib, 64 * kib}}) {
        comm.set_doubling(bytes);
        const auto part = comm.split_network(0, 0, call());
        testing::Array sum = in[static_cast<std::size_t>(comm.rank())];
        const TensorView view{.in = sum.data(), .out = sum.data(), .count = count};
        all_reduce(*part, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
        EXPECT_EQ(sum, testing::reduced(in, TNT_SUM))
            << count << " numbers, doubled above " << bytes.above << " up to " << bytes.up_to;
      }
    }
  });
}

TEST(DoublingRange, IsNotMeasuredWhereNothingIsChosenByIt) {
  for (const auto& [ranks, one_node] : {std::pair{2, false}, {8, true}}) {
    run(ranks, one_node, [](NetworkCommunicator& comm) { EXPECT_FALSE(measure_doubling(comm, testing::default_timeout)); });
  }
}

}  // namespace
}  // namespace tnt
