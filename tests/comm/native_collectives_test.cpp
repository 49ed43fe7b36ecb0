// The network's own collectives in place of ours: results of every type and operation, where they are taken and where not, and
// that calls are compared, deadlines kept and memory left alone as with ours. The fake network sums in another order than ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "comm/network/communicator.hpp"
#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::common_error;
using testing::disorderly_arrays;
using testing::exact_values;
using testing::run_threads;
using testing::tree_sum_of_arrays;

constexpr int ranks = 5;

NetworkCommunicator& natively(Communicator& comm) {
  auto& network = dynamic_cast<NetworkCommunicator&>(comm);
  EXPECT_TRUE(network.has_native());
  network.take_native(NativeChoice::everywhere());
  return network;
}

std::vector<Array> exact_arrays(tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> all;
  for (unsigned rank = 0; rank < ranks; ++rank) all.push_back(exact_values(dtype, count, rank));
  return all;
}

Array sum_of(Communicator& comm, const std::vector<Array>& in, tnt_op_t op = TNT_SUM) {
  Array data = in[static_cast<std::size_t>(comm.rank())];
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
  all_reduce(comm, FusedBuffer({&view, 1}, data.dtype()), op, call());
  return data;
}

TEST(Native, AllReduceOfEveryTypeAndOperation) {
  run_threads(ranks, [](Communicator& comm) {
    natively(comm);
    for (const tnt_dtype_t dtype : all_dtypes) {
      for (const tnt_op_t op : all_ops) {
        for (const std::size_t count : {0, 1, 1000}) {
          const auto in = exact_arrays(dtype, static_cast<std::size_t>(count));
          EXPECT_EQ(sum_of(comm, in, op), testing::reduced(in, op)) << count << " of dtype " << dtype << ", op " << op;
        }
      }
    }
  });
}

// Three chunks of packed data, and one tensor that is sent from the caller's memory.
TEST(Native, AllReduceOfPackedTensors) {
  run_threads(ranks, [](Communicator& comm) {
    natively(comm);
    constexpr std::size_t count = (std::size_t{2} << 20) + 12'345;
    std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
    std::vector<float> out(count);
    const TensorView views[] = {{.in = data.data(), .out = out.data(), .count = 100, .scale = 2.0},
                                {.in = data.data() + 100, .out = out.data() + 100, .count = count - 100}};
    all_reduce(comm, FusedBuffer(views, TNT_FLOAT32), TNT_SUM, call());
    std::vector<float> expected(count, 15.0F);
    std::fill_n(expected.begin(), 100, 30.0F);
    EXPECT_EQ(out, expected);
    std::vector<float> plain(count);
    const TensorView view{.in = data.data(), .out = plain.data(), .count = count};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
    EXPECT_EQ(plain, std::vector<float>(count, 15.0F));
  });
}

TEST(Native, ReduceScatterAndAllGatherAlsoInPlace) {
  run_threads(ranks, [](Communicator& comm) {
    natively(comm);
    constexpr std::size_t count = 3000;
    const auto self = static_cast<std::size_t>(comm.rank());
    const auto in = exact_arrays(TNT_FLOAT64, count * ranks);
    const Array expected = testing::reduced(in, TNT_SUM);
    Array out(TNT_FLOAT64, count);
    reduce_scatter(comm, in[self].data(), out.data(), count, TNT_FLOAT64, TNT_SUM, call());
    EXPECT_EQ(out, expected.part(self * count, count));
    Array data = in[self];
    double* own = static_cast<double*>(data.data()) + self * count;
    reduce_scatter(comm, data.data(), own, count, TNT_FLOAT64, TNT_SUM, call());
    EXPECT_EQ(data.part(self * count, count), expected.part(self * count, count));
    Array all(TNT_FLOAT64, count * ranks);
    all_gather(comm, own, all.data(), count, TNT_FLOAT64, call());
    EXPECT_EQ(all, expected);
    all_gather(comm, own, data.data(), count, TNT_FLOAT64, call());
    EXPECT_EQ(data, expected);
  });
}

// The order of summation tells where a sum was taken: here the network's and the tree differ.
TEST(Native, IsTakenWhereItIsAllowedOnly) {
  const auto in = disorderly_arrays(ranks, TNT_FLOAT32, 4096);
  const Array tree = tree_sum_of_arrays(in);
  run_threads(ranks, [&](Communicator& comm) {
    auto& network = dynamic_cast<NetworkCommunicator&>(comm);
    EXPECT_EQ(sum_of(comm, in), tree) << "before anybody allows another order";
    natively(comm);
    const Array native = sum_of(comm, in);
    EXPECT_NE(native, tree);
    EXPECT_EQ(sum_of(*comm.split(0, 0, call()), in), native) << "the same members";
    EXPECT_EQ(sum_of(*comm.duplicate_with_flat_sums(call()), in), tree);
    EXPECT_EQ(sum_of(*comm.split(0, -comm.rank(), call()), in), tree) << "the same members in another order";
    const auto part = comm.split(comm.rank() % 2, 0, call());
    if (comm.rank() % 2 == 0) {
      std::vector<Array> evens{in[0], in[2], in[4]};
      Array data = in[static_cast<std::size_t>(comm.rank())];
      const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
      all_reduce(*part, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
      EXPECT_EQ(data, tree_sum_of_arrays(evens));
    }
    NativeChoice large;
    large.set(Call::all_reduce, 65'536, true);
    network.take_native(large);
    EXPECT_EQ(sum_of(comm, in), tree) << "smaller than 64 KiB";
    large.set(Call::all_reduce, 16'384, true);
    network.take_native(large);
    EXPECT_EQ(sum_of(comm, in), native);
    network.take_native({});
    EXPECT_EQ(sum_of(comm, in), tree);
  });
}

TEST(Native, TheMeasurementGivesAllRanksTheSameChoice) {
  run_threads(3, [](Communicator& comm) {
    auto& network = dynamic_cast<NetworkCommunicator&>(comm);
    const NativeChoice choice = measure_native(network, 50.0);
    std::string text = choice.describe();
    text.resize(512);
    std::string all(3 * text.size(), '\0');
    all_gather(comm, text.data(), all.data(), text.size(), TNT_UINT8, call());
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(all.substr(rank * text.size(), text.size()), text);
  });
}

TEST(Native, AChoiceIsDescribed) {
  NativeChoice choice;
  EXPECT_EQ(choice.describe(), "none");
  choice.set(Call::all_reduce, 4096, true);
  choice.set(Call::all_reduce, 65'536, false);
  choice.set(Call::all_gather, std::size_t{1} << 20, true);
  EXPECT_EQ(choice.describe(), "all_reduce from 4 KiB to 64 KiB, all_gather from 1 MiB");
  EXPECT_FALSE(choice.takes(Call::all_reduce, 4095));
  EXPECT_TRUE(choice.takes(Call::all_reduce, 65'535));
  EXPECT_FALSE(choice.takes(Call::all_reduce, 65'536));
  EXPECT_TRUE(choice.takes(Call::all_gather, ~std::size_t{0}));
  EXPECT_EQ(NativeChoice::everywhere().describe(),
            "all_reduce from 0 bytes, reduce_scatter from 0 bytes, all_gather from 0 bytes");
}

// A rank whose neighbours made the same call may end it: then its next call has the error.
TEST(Native, DifferentCallsAreNamed) {
  const std::string message = common_error(4, TNT_MISMATCH, [](Communicator& comm) {
    natively(comm);
    std::vector<float> data(10'000, 1.0F);
    const TensorView view{.in = data.data(), .out = data.data(), .count = comm.rank() < 2 ? data.size() : 5000};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
    barrier(comm, call());
  });
  EXPECT_NE(message.find("all_reduce sum of 10000 float32"), std::string::npos) << message;
  EXPECT_NE(message.find("all_reduce sum of 5000 float32"), std::string::npos) << message;
}

// The others' collective has failed by then: data of another length came.
TEST(Native, DifferentCallsAreNamedIfThoseWhoFindThemAreLate) {
  const std::string message = common_error(6, TNT_MISMATCH, [](Communicator& comm) {
    natively(comm);
    if (comm.rank() == 0 || comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::vector<float> data(10'000, 1.0F);
    const TensorView view{.in = data.data(), .out = data.data(), .count = comm.rank() < 3 ? data.size() : 5000};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
    barrier(comm, call());
  });
  EXPECT_NE(message.find("all_reduce sum of 10000 float32"), std::string::npos) << message;
}

TEST(Native, WhoDoesNotComeIsNamed) {
  const std::string message = common_error(3, TNT_TIMEOUT, [](Communicator& comm) {
    natively(comm);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::vector<float> data(10'000, 1.0F);
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call(0.3));
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.3 s"), 0U) << message;
}

TEST(Native, WhoLeavesIsNamed) {
  const testing::ThreadJob job(3);
  const auto endings = job.run([](Communicator& comm) {
    natively(comm);
    if (comm.rank() == 2) return;
    std::vector<float> data(10'000, 1.0F);
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
  });
  for (const std::size_t rank : {0, 1}) {
    ASSERT_TRUE(endings[rank]);
    EXPECT_EQ(endings[rank]->status(), TNT_PEER_LOST) << endings[rank]->what();
    EXPECT_NE(std::string(endings[rank]->what()).find("rank 2 left the job"), std::string::npos) << endings[rank]->what();
  }
}

}  // namespace
}  // namespace tnt
