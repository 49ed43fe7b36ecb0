// What is specific to the hierarchical communicator: chunks in the node and on the network at once, groups of all shapes,
// errors that cross from the network to shared memory and back. The test program has two nodes; ranks alternate between them.
#include "comm/hierarchical/communicator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/fake_network.hpp"
#include "support/thread_ranks.hpp"
#include "support/transport.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::common_error;
using testing::exact_values;
using testing::reduced;
using testing::run_threads;

std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(exact_values(dtype, count, static_cast<unsigned>(rank)));
  return result;
}

TEST(Hierarchical, IsWhatItsRanksAllow) {
  for (const auto& [ranks, name] :
       {std::pair{1, "shm"}, {2, "mpi"}, {3, "hierarchical"}, {4, "hierarchical"}, {8, "hierarchical"}}) {
    run_threads(ranks, [name = name](Communicator& comm) {
      EXPECT_STREQ(comm.transport(), name);
      EXPECT_EQ(comm.local_rank(), comm.rank() / 2);
      EXPECT_EQ(comm.local_size(), (comm.size() + 1 - comm.rank() % 2) / 2);
    });
  }
}

TEST(Hierarchical, AllReduceAroundItsChunks) {
  for (const int ranks : testing::some_of({4, 8}, {4})) {
    const std::size_t chunk = std::size_t{32} * 1024 * static_cast<std::size_t>(ranks) / 2;  // bytes
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      for (const std::size_t bytes : {std::size_t{8200}, chunk - 8, chunk, chunk + 8, 3 * chunk + 1024, 9 * chunk}) {
        if (bytes > chunk && dtype != TNT_FLOAT32 && dtype != TNT_UINT8) continue;
        const std::size_t count = bytes / dtype_size(dtype);
        const auto in = inputs(ranks, dtype, count);
        for (const tnt_op_t op : testing::all_ops) {
          if (op != TNT_SUM && bytes != 8200) continue;
          const Array expected = reduced(in, op);
          run_threads(ranks, [&](Communicator& comm) {
            Array data = in[static_cast<std::size_t>(comm.rank())];
            const TensorView view{.in = data.data(), .out = data.data(), .count = count};
            for (int i = 0; i < 2; ++i) {
              data = in[static_cast<std::size_t>(comm.rank())];
              all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), op, call());
              EXPECT_EQ(data, expected) << dtype_name(dtype) << ", bytes " << bytes << ", op " << op_name(op);
            }
          });
        }
      }
    }
  }
}

// Values whose sum depends on the order: sums per node first.
TEST(Hierarchical, SumsHaveTheSameBitsAlways) {
  constexpr std::size_t count = 150'001;
  const auto value = [](std::size_t rank, std::size_t i) {
    return std::sin(static_cast<float>((rank + 1) * (i + 3))) *
           std::ldexp(1.0F, static_cast<int>((i * 7 + rank * 5) % 30) - 15);
  };
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i) expected[i] = (value(0, i) + value(2, i)) + (value(1, i) + value(3, i));
  for (int repeat = 0; repeat < 3; ++repeat) {
    run_threads(4, [&](Communicator& comm) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = value(static_cast<std::size_t>(comm.rank()), i);
      const TensorView view{.in = data.data(), .out = data.data(), .count = count};
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
      EXPECT_EQ(data, expected);
    });
  }
}

// Nodes of any sizes with ranks anywhere: the tree over each node's ranks, then over the nodes in the order of their first
// ranks; and for numbers whose sums are exact, the sum.
TEST(Hierarchical, RandomPlacementsOfRanksOnNodes) {
  std::mt19937 random(7);
  for (int trial = 0; trial < testing::some_of({8}, {2}).front(); ++trial) {
    const int ranks = 3 + static_cast<int>(random() % 6);
    std::vector<int> nodes(static_cast<std::size_t>(ranks));
    testing::Groups groups;
    std::map<unsigned, int> numbers;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const auto [found, is_new] = numbers.emplace(random() % 3, static_cast<int>(groups.size()));
      if (is_new) groups.emplace_back();
      nodes[rank] = found->second;
      groups[static_cast<std::size_t>(nodes[rank])].push_back(rank);
    }
    std::string where;
    for (const int node : nodes) where += std::to_string(node);
    std::vector<std::pair<std::vector<Array>, Array>> sums;  // contributions and result
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      for (const std::size_t bytes : {100, 5000, 300'004}) {
        if (bytes > 5000 && dtype != TNT_FLOAT32 && dtype != TNT_BFLOAT16) continue;
        auto in = testing::disorderly_arrays(nodes.size(), dtype, bytes / dtype_size(dtype));
        Array sum = testing::tree_sum_of_arrays(in, groups);
        sums.emplace_back(std::move(in), std::move(sum));
      }
    }
    const auto exact = inputs(ranks, TNT_FLOAT32, 20'000);
    const testing::ThreadJob job(ranks, testing::make_transport_on(nodes));
    const auto endings = job.run([&](Communicator& comm) {
      const auto reduce = [&](const std::vector<Array>& in, tnt_op_t op) {
        Array data = in[static_cast<std::size_t>(comm.rank())];
        const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
        all_reduce(comm, FusedBuffer({&view, 1}, data.dtype()), op, call());
        return data;
      };
      // the halves belong to the last rank and to rank 1
      const auto reduce_to_owners = [&](const std::vector<Array>& in) {
        Array data = in[static_cast<std::size_t>(comm.rank())];
        const std::vector<int> owners{1, comm.size() - 1};
        const std::size_t half = data.count() / 2;
        const std::size_t bytes = half * dtype_size(data.dtype());
        auto* const begin = static_cast<std::byte*>(data.data());
        const std::array<TensorView, 2> views{
            TensorView{.in = begin, .out = comm.rank() == owners[0] ? begin : nullptr, .count = half},
            TensorView{
                .in = begin + bytes, .out = comm.rank() == owners[1] ? begin + bytes : nullptr, .count = data.count() - half}};
        tnt::reduce_to_owners(comm, FusedBuffer(views, data.dtype()), owners, TNT_SUM, call());
        return data;
      };
      for (const auto& [in, sum] : sums) {
        EXPECT_EQ(reduce(in, TNT_SUM), sum) << dtype_name(sum.dtype()) << ", " << sum.count() << ", nodes " << where;
        const std::size_t half = sum.count() / 2;
        const Array owned = reduce_to_owners(in);
        if (comm.rank() == 1) {
          EXPECT_EQ(owned.part(0, half), sum.part(0, half)) << dtype_name(sum.dtype()) << ", nodes " << where;
        }
        if (comm.rank() == comm.size() - 1) {
          EXPECT_EQ(owned.part(half, sum.count() - half), sum.part(half, sum.count() - half)) << where;
        }
      }
      for (const tnt_op_t op : testing::all_ops) EXPECT_EQ(reduce(exact, op), reduced(exact, op)) << op_name(op) << where;
    });
    for (const auto& ending : endings) EXPECT_FALSE(ending) << where << ": " << ending->what();
  }
}

// With a 16-bit wire type the node's sum is rounded once; rounding each rank's own contribution would lose the remainder of
// this rank's. 16-bit tensors use the flat algorithm, with sums in float32 as always.
TEST(Hierarchical, WhatTravelsIn16BitsIsRoundedBetweenNodes) {
  run_threads(4, [](Communicator& comm) {
    std::vector<float> data(40'000);
    const auto fill = [&] {
      const float value = comm.rank() == 0 ? 1.0F + 0x1p-9F : comm.rank() == 2 ? -1.0F : 0.0F;
      std::fill(data.begin(), data.end(), value);
    };
    fill();
    const TensorView wide{.in = data.data(), .out = data.data(), .count = data.size(), .dtype = TNT_FLOAT32};
    all_reduce(comm, tnt::FusedBuffer({&wide, 1}, TNT_BFLOAT16), TNT_SUM, call());
    EXPECT_EQ(data, std::vector<float>(data.size(), 0x1p-9F));
    fill();
    Array half(TNT_BFLOAT16, 1);
    const std::array<TensorView, 2> mixed{wide, TensorView{.in = half.data(), .out = half.data(), .count = 1}};
    all_reduce(comm, tnt::FusedBuffer(mixed, TNT_BFLOAT16), TNT_SUM, call());
    EXPECT_EQ(data, std::vector<float>(data.size(), 0.0F));
  });
}

TEST(Hierarchical, PartsOfAllShapes) {
  run_threads(8, [](Communicator& comm) {
    const auto sum = [](Communicator& part) {
      std::vector<float> data(50'000, 1.0F);
      const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
      all_reduce(part, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
      EXPECT_EQ(data, std::vector<float>(data.size(), static_cast<float>(part.size())));
    };
    const auto node = comm.split(comm.rank() % 2, 0, call());
    EXPECT_STREQ(node->transport(), "shm");
    sum(*node);
    const auto half = comm.split(comm.rank() / 4, -comm.rank(), call());
    EXPECT_STREQ(half->transport(), "hierarchical");
    sum(*half);
    const auto uneven = comm.split(comm.rank() < 5 ? 0 : -1, 0, call());
    EXPECT_EQ(uneven == nullptr, comm.rank() >= 5);
    if (uneven) {
      EXPECT_STREQ(uneven->transport(), "hierarchical");
      sum(*uneven);
    }
    sum(comm);
  });
}

// Rank 1 is busy while the other ranks of its node wait for it in shared memory. They get the error that ended the job on the
// other node.
TEST(Hierarchical, AnEndingElsewhereReachesWhoWaitsInSharedMemory) {
  const std::string message = common_error(4, TNT_ABORTED, [](Communicator& comm) {
    const auto node = comm.split(comm.rank() % 2, 0, call());
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      comm.abort(TNT_ABORTED, "the loss is not a number");
    }
    while (true) barrier(*node, call());
  });
  EXPECT_EQ(message, "the loss is not a number");
}

TEST(Hierarchical, ALateRankIsNamedByItsPlaceInTheJob) {
  const std::string message = common_error(4, TNT_TIMEOUT, [](Communicator& comm) {
    const auto node = comm.split(comm.rank() % 2, 0, call());
    if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    barrier(comm.rank() % 2 == 1 ? *node : comm, {.timeout = 0.3});
  });
  EXPECT_NE(message.find("did not arrive within 0.3 s while rank "), std::string::npos) << message;
  EXPECT_NE(message.find("rank 3"), std::string::npos) << message;
}

// Rank 1 waits for rank 3 in shared memory, and ranks 0 and 2 wait for them in messages: only rank 3 is to blame.
TEST(Hierarchical, WhoWaitsForSomebodyWhoWaitsIsNotNamed) {
  std::vector<std::vector<float>> data(4, std::vector<float>(300'000));
  const std::string message = common_error(4, TNT_TIMEOUT, [&](Communicator& comm) {
    auto& own = data[static_cast<std::size_t>(comm.rank())];
    const TensorView view{.in = own.data(), .out = own.data(), .count = own.size()};
    for (int step = 0; step < 3; ++step) {
      if (comm.rank() == 3 && step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(6000));
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, {.timeout = step == 2 ? 1.5 : 50.0});
    }
  });
  EXPECT_EQ(message.find("rank 3 did not arrive within 1.5 s while rank "), 0U) << message;
}

// Rank 1 waits for rank 2 in shared memory and asks it for a second. It waits, too, for a rank that asks it meanwhile.
TEST(Hierarchical, WhoAsksAnswersThatItWaits) {
  const auto hub = std::make_shared<testing::FakeHub>(3, 10);
  std::vector<std::shared_ptr<NetworkWorld>> worlds;
  for (int rank = 0; rank < 3; ++rank) {
    worlds.push_back(std::make_shared<NetworkWorld>(std::make_shared<testing::FakeNetwork>(hub, rank)));
  }
  std::thread asks([&] { EXPECT_FALSE(remote_abort_link(worlds[1])->all_wait({2})); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(worlds[0]->all_wait({1}));
  asks.join();
}

}  // namespace
}  // namespace tnt
