// Long random sequences of calls, and several communicators at once.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::exact_values;
using testing::reduced;
using testing::run_threads;

constexpr unsigned barrier_code = 4;

// One call, derived from the same random numbers on all ranks, with its inputs, so that each rank can check its result.
void random_call(Communicator& comm, std::mt19937& random) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  const unsigned code = random() % 5;
  const tnt_dtype_t dtype = all_dtypes[random() % 8];
  const tnt_op_t op = all_ops[random() % 5];
  const int root = static_cast<int>(random() % n);
  const std::size_t magnitude = std::array<std::size_t, 4>{4, 200, 9'000, 90'000}[random() % 8 == 0 ? 3 : random() % 3];
  const std::size_t count = random() % magnitude;
  const unsigned seed = random() % 1000;
  if (code == barrier_code) return barrier(comm, call());

  const std::size_t in_count = code == 1 ? count * n : count;
  std::vector<Array> in;
  for (std::size_t rank = 0; rank < n; ++rank)
    in.push_back(exact_values(dtype, in_count, seed * 8 + static_cast<unsigned>(rank)));
  Array out(dtype, code == 2 ? count * n : count);
  if (code == 0) {
    const TensorView view{.in = in[self].data(), .out = out.data(), .count = count};
    all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), op, call());
    EXPECT_EQ(out, reduced(in, op));
  } else if (code == 1) {
    reduce_scatter(comm, in[self].data(), out.data(), count, dtype, op, call());
    EXPECT_EQ(out, reduced(in, op).part(self * count, count));
  } else if (code == 2) {
    all_gather(comm, in[self].data(), out.data(), count, dtype, call());
    for (std::size_t rank = 0; rank < n; ++rank) EXPECT_EQ(out.part(rank * count, count), in[rank]);
  } else {
    broadcast(comm, in[self].data(), out.data(), count, dtype, root, call());
    EXPECT_EQ(out, in[static_cast<std::size_t>(root)]);
  }
}

class OrderTest : public ::testing::TestWithParam<int> {};

TEST_P(OrderTest, AnySequenceOfCallsIsRight) {
  run_threads(GetParam(), [&](Communicator& comm) {
    std::mt19937 random(static_cast<unsigned>(GetParam()));
    for (int i = 0; i < testing::effort(120, 40); ++i) random_call(comm, random);
  });
}

TEST_P(OrderTest, RanksThatDawdleAreWaitedFor) {
  run_threads(GetParam(), [&](Communicator& comm) {
    std::mt19937 random(7);
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    for (int i = 0; i < testing::effort(40, 15); ++i) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      random_call(comm, random);
    }
  });
}

TEST_P(OrderTest, SeveralCommunicatorsRunAtOnce) {
  run_threads(GetParam(), [&](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(world.split(0, i % 2 == 0 ? world.rank() : -world.rank(), call()));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        try {
          std::mt19937 random(i);
          for (int k = 0; k < testing::effort(30, 8); ++k) random_call(*parts[i], random);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    std::mt19937 random(9);
    for (int k = 0; k < testing::effort(30, 8); ++k) random_call(world, random);
    for (std::thread& thread : threads) thread.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OrderTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3, 4})));

}  // namespace
}  // namespace tnt
