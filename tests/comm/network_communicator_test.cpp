// What is specific to the network communicator: limits of messages and chunks, messages between two ranks, late ranks.
#include "comm/network/communicator.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/fake_network.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::common_error;
using testing::exact_values;
using testing::reduced;
using testing::run_threads;

class NetworkTest : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] std::vector<Array> inputs(tnt_dtype_t dtype, std::size_t count) const {
    std::vector<Array> result;
    for (unsigned rank = 0; rank < n; ++rank) result.push_back(exact_values(dtype, count, rank));
    return result;
  }
  const int ranks = GetParam();
  const std::size_t n = static_cast<std::size_t>(ranks);
};

// Around the largest call whose data is sent with its first message, the smallest with several chunks, and the largest chunks.
std::vector<std::size_t> byte_borders(std::size_t n) {
  const std::size_t inner = std::size_t{32} * 1024;
  std::vector<std::size_t> result;
  for (const std::size_t border : {std::size_t{8} * 1024, inner * n, 4 * inner * n, 4 * inner * n + inner}) {
    for (const std::size_t near : {border - 8, border, border + 8}) result.push_back(near);
  }
  if (n <= 4) result.push_back(9 * std::size_t{512} * 1024 * n + 8);
  return result;
}

// The buffers of incoming messages take about one chunk of 1 MiB, although 2 log2 n + 3 chunks are in flight.
TEST(NetworkMemory, HalvingNeedsMemoryForOneChunk) {
  constexpr std::size_t count = (std::size_t{8} << 20) / sizeof(float);
  run_threads(8, [&](Communicator& comm) {
    auto& network = dynamic_cast<NetworkCommunicator&>(comm);
    network.force({.all_reduce = AllReduceAlgorithm::halving});
    std::vector<float> data(count, 1.0F);
    const TensorView view{.in = data.data(), .out = data.data(), .count = count};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
    EXPECT_EQ(data.front(), 8.0F);
    EXPECT_EQ(data.back(), 8.0F);
    EXPECT_LE(network.staging_bytes(), std::size_t{5} << 19);
  });
}

// Two tensors have to be packed.
TEST(NetworkMemory, ManyRanksPackSmallerChunks) {
  if (testing::sanitized) GTEST_SKIP() << "128 ranks";
  constexpr std::size_t count = (std::size_t{3} << 20) / sizeof(float);
  run_threads(128, [&](Communicator& comm) {
    std::vector<float> data(2 * count, 1.0F);
    const TensorView first{.in = data.data(), .out = data.data(), .count = count};
    const TensorView second{.in = data.data() + count, .out = data.data() + count, .count = count};
    all_reduce(comm, FusedBuffer(std::array{first, second}, TNT_FLOAT32), TNT_SUM, call());
    EXPECT_EQ(data, std::vector<float>(2 * count, 128.0F));
    EXPECT_LE(dynamic_cast<NetworkCommunicator&>(comm).staging_bytes(), std::size_t{4} << 20);
  });
}

TEST_P(NetworkTest, AllReduceAroundEveryBorder) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_UINT8}) {
    for (const std::size_t bytes : byte_borders(n)) {
      if (testing::sanitized && bytes > 400'000) continue;
      const std::size_t count = bytes / dtype_size(dtype);
      const auto in = inputs(dtype, count);
      const Array expected = reduced(in, TNT_SUM);
      run_threads(ranks, [&](Communicator& comm) {
        Array data = in[static_cast<std::size_t>(comm.rank())];
        const TensorView view{.in = data.data(), .out = data.data(), .count = count};
        all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), TNT_SUM, call());
        EXPECT_EQ(data, expected) << bytes;
      });
    }
  }
}

TEST_P(NetworkTest, AllReduceInChunksOfEveryTypeAndOperation) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (const tnt_op_t op : all_ops) {
      const std::size_t count = 40'003 / dtype_size(dtype);
      const auto in = inputs(dtype, count);
      const Array expected = reduced(in, op);
      run_threads(ranks, [&](Communicator& comm) {
        Array out(dtype, count);
        const TensorView view{.in = in[static_cast<std::size_t>(comm.rank())].data(), .out = out.data(), .count = count};
        all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), op, call());
        EXPECT_EQ(out, expected) << dtype_name(dtype) << op_name(op);
      });
    }
  }
}

TEST_P(NetworkTest, TheOthersInChunks) {
  constexpr tnt_dtype_t dtype = TNT_INT32;
  for (const std::size_t count : {std::size_t{2048}, std::size_t{2049}, std::size_t{8192}, std::size_t{50'001}}) {
    const auto in = inputs(dtype, count * n);
    const Array sum = reduced(in, TNT_SUM);
    run_threads(ranks, [&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      Array part(dtype, count);
      reduce_scatter(comm, in[self].data(), part.data(), count, dtype, TNT_SUM, call());
      EXPECT_EQ(part, sum.part(self * count, count));
      Array whole(dtype, count * n);
      all_gather(comm, part.data(), whole.data(), count, dtype, call());
      EXPECT_EQ(whole, sum);
      Array exchanged = in[self];
      all_to_all(comm, exchanged.data(), exchanged.data(), count, dtype, call());
      for (std::size_t from = 0; from < n; ++from) {
        EXPECT_EQ(exchanged.part(from * count, count), in[from].part(self * count, count));
      }
      for (int root = 0; root < ranks; ++root) {
        Array data = in[self];
        broadcast(comm, data.data(), data.data(), count * n, dtype, root, call());
        EXPECT_EQ(data, in[static_cast<std::size_t>(root)]);
      }
    });
  }
}

TEST_P(NetworkTest, MessagesTravelInARing) {
  if (ranks == 1) GTEST_SKIP() << "a rank sends nothing to itself";
  for (const std::size_t count : {0UL, 1UL, 2048UL, 2049UL, 133'120UL, 133'121UL, 400'000UL}) {
    run_threads(ranks, [&](Communicator& comm) {
      const Array own = exact_values(TNT_FLOAT32, count, static_cast<unsigned>(comm.rank()));
      const int next = (comm.rank() + 1) % ranks;
      const int before = (comm.rank() + ranks - 1) % ranks;
      std::thread sending([&] {
        for (int i = 0; i < 2; ++i) send(comm, own.data(), count, TNT_FLOAT32, next, call());
      });
      barrier(comm, call());
      for (int i = 0; i < 2; ++i) {
        Array got(TNT_FLOAT32, count);
        recv(comm, got.data(), count, TNT_FLOAT32, before, call());
        EXPECT_EQ(got, exact_values(TNT_FLOAT32, count, static_cast<unsigned>(before)));
      }
      sending.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NetworkTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(NetworkMessages, AnotherCountIsTheSameErrorOnBothRanks) {
  const std::string message = common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    std::vector<float> data(300'000);
    if (comm.rank() == 0) send(comm, data.data(), 300'000, TNT_FLOAT32, 1, call());
    if (comm.rank() == 1) recv(comm, data.data(), 7, TNT_FLOAT32, 0, call());
    barrier(comm, call());
  });
  EXPECT_EQ(message,
            "rank 1 called recv of 7 float32 from rank 0 while rank 0 called send of 300000 float32 to rank 1: their "
            "types and counts must be equal");
}

TEST(NetworkMessages, ALargeMessageThatNobodyTakesIsATimeout) {
  const std::string message = common_error(2, TNT_TIMEOUT, [](Communicator& comm) {
    std::vector<float> data(300'000);
    if (comm.rank() == 0) send(comm, data.data(), 300'000, TNT_FLOAT32, 1, call(0.2));
    barrier(comm, call());
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.2 s while rank 0 in send of 300000 float32 to rank 1 waited"), 0U)
      << message;
}

TEST(NetworkFailure, ALateRankOfALargeCallIsNamed) {
  const std::string message = common_error(3, TNT_TIMEOUT, [](Communicator& comm) {
    std::vector<float> data(300'000);
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
    all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, {.timeout = 0.3, .detail = "bucket 3"});
  });
  EXPECT_EQ(message.find("rank 2 did not arrive within 0.3 s while rank "), 0U) << message;
  EXPECT_NE(message.find("in all_reduce sum of 300000 float32 (call 1, bucket 3)"), std::string::npos) << message;
}

TEST(NetworkFailure, WhenAllGiveUpAtOnceTheySayTheSame) {
  for (int repeat = 0; repeat < testing::effort(5, 2); ++repeat) {
    (void)common_error(5, TNT_ABORTED, [](Communicator& comm) {
      barrier(comm, call());
      comm.abort(TNT_ABORTED, fmt::format("rank {} has had enough", comm.rank()));
      while (true) barrier(comm, call());
    });
  }
}

TEST(NetworkFailure, ErrorsEndTheJobUnlessTcpConnectsTheRanks) {
  run_threads(2, [](Communicator& comm) {
    EXPECT_TRUE(comm.hosts().empty());
    try {
      comm.set_error_scope(ErrorScope::communicator);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
      EXPECT_NE(std::string(error.what()).find("MPI ends all processes of a job of which one has died"), std::string::npos)
          << error.what();
    }
  });
}

TEST(NetworkFailure, TagsThatRunOutAreSaid) {
  const testing::ThreadJob job(2);
  const auto endings = job.run([](Communicator& comm) {
    for (int i = 0; i < 10'000; ++i) {
      const auto part = comm.split(0, 0, call());
      barrier(*part, call());
    }
  });
  for (const auto& ending : endings) {
    ASSERT_TRUE(ending);
    EXPECT_NE(std::string(ending->what()).find("has no tags left: too many communicators were made"), std::string::npos);
  }
}

}  // namespace
}  // namespace tnt
