// The communicator of one rank: every collective is a copy; an abort ends it and everything split from it.
#include "comm/local.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::exact_values;

const CallContext call{.timeout = 1.0};

TEST(LocalCommunicator, EveryCollectiveIsACopy) {
  LocalCommunicator comm;
  EXPECT_EQ(comm.size(), 1);
  EXPECT_EQ(comm.local_size(), 1);
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.local_rank(), 0);
  EXPECT_STREQ(comm.transport(), "local");
  for (const tnt_dtype_t dtype : testing::all_dtypes) {
    const Array in = exact_values(dtype, 100, 1);
    std::array<Array, 4> outs{Array(dtype, 100), Array(dtype, 100), Array(dtype, 100), Array(dtype, 100)};
    const TensorView view{.in = in.data(), .out = outs[0].data(), .count = 100};
    all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), TNT_AVG, call);
    reduce_scatter(comm, in.data(), outs[1].data(), 100, dtype, TNT_PROD, call);
    all_gather(comm, in.data(), outs[2].data(), 100, dtype, call);
    broadcast(comm, in.data(), outs[3].data(), 100, dtype, 0, call);
    barrier(comm, call);
    for (const Array& out : outs) EXPECT_EQ(out, in);
  }
}

TEST(LocalCommunicator, ScalesAndLeavesOutWhatIsNotWanted) {
  LocalCommunicator comm;
  const Array in = exact_values(TNT_FLOAT32, 10, 2);
  Array out(TNT_FLOAT32, 10);
  const std::array views{TensorView{.in = in.data(), .out = nullptr, .count = 10},
                         TensorView{.in = in.data(), .out = out.data(), .count = 10, .scale = 4.0}};
  all_reduce(comm, tnt::FusedBuffer(views, TNT_FLOAT32), TNT_SUM, call);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(out.get(i), 4 * in.get(i));
}

TEST(LocalCommunicator, AnAbortEndsAllParts) {
  LocalCommunicator comm;
  const auto part = comm.split(0, 0, call);
  EXPECT_EQ(comm.split(-1, 0, call), nullptr);
  std::thread other([&] { part->abort(TNT_ABORTED, "enough"); });
  try {
    while (true) barrier(comm, call);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "enough");
  }
  other.join();
  part->abort(TNT_ABORTED, "too late");
  EXPECT_THROW(barrier(*part, call), Error);
  EXPECT_THROW((void)comm.split(0, 0, call), Error);
}

}  // namespace
}  // namespace tnt
