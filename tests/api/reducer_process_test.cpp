// The reducer between processes: sums over steps, different plans, ranks that die or are late, early destruction.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

struct Destroy {
  void operator()(tnt_reducer_t reducer) const { EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS); }
};
using Reducer = std::unique_ptr<tnt_reducer, Destroy>;

const std::array<tnt_tensor_t, 4> tensors{
    {{"embedding", 70'000, TNT_FLOAT32}, {"kernel", 5000, TNT_FLOAT32}, {"scale", 0, TNT_FLOAT64}, {"bias", 10, TNT_BFLOAT16}}};

Reducer make(tnt_comm_t comm, std::size_t threshold, const char* name = nullptr) {
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  options.fusion_threshold = threshold;
  options.name = name;
  tnt_reducer_t reducer = nullptr;
  check(tnt_reducer_create(comm, tensors.data(), tensors.size(), &options, &reducer));
  return Reducer(reducer);
}

// Whole numbers, small enough for exact sums over ranks with scales that are powers of two.
Array gradient(std::size_t tensor, int rank, int step) {
  return exact_values(tensors[tensor].dtype, tensors[tensor].count,
                      static_cast<unsigned>(rank + 8 * step) + static_cast<unsigned>(tensor));
}

void run_step(tnt_reducer_t reducer, int rank, int ranks, int step) {
  const double scale = rank == 1 && step % 2 == 1 ? 0.0 : 0.5;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank * 100 + step)));
  std::vector<Array> values;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) values.push_back(gradient(tensor, rank, step));
  if (step % 3 == 2) {  // all but the first in one call
    std::vector<const void*> gradients;
    std::vector<void*> outs;
    for (const std::size_t tensor : order) {
      gradients.push_back(values[tensor].data());
      outs.push_back(values[tensor].data());
    }
    const std::vector<double> scales(order.size(), scale);
    check(tnt_reducer_ready(reducer, order[0], gradients[0], outs[0], scale, nullptr));
    check(tnt_reducer_ready_many(reducer, order.data() + 1, gradients.data() + 1, outs.data() + 1, scales.data(),
                                 order.size() - 1, nullptr));
  } else {
    for (const std::size_t tensor : order) {
      check(tnt_reducer_ready(reducer, tensor, values[tensor].data(), values[tensor].data(), scale, nullptr));
    }
  }
  check(tnt_reducer_finish(reducer, nullptr));
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    std::vector<Array> in;
    for (int other = 0; other < ranks; ++other) {
      if (other != 1 || step % 2 == 0) in.push_back(gradient(tensor, other, step));
    }
    const Array expected = repeated(tensors[tensor].dtype, tensors[tensor].count, [&](std::size_t i) {
      double sum = 0;
      for (const Array& one : in) sum += 0.5 * one.get(i);
      return sum;
    });
    EXPECT_EQ(values[tensor], expected) << tensors[tensor].name << " in step " << step;
  }
}

class ReducerProcessTest : public ::testing::TestWithParam<int> {};

TEST_P(ReducerProcessTest, SumsStepAfterStep) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    for (const std::size_t threshold : {std::size_t{0}, std::size_t{30'000}, TNT_FUSION_DEFAULT}) {
      const Reducer one = make(job.world, threshold);
      const Reducer two = make(job.world, threshold / 2, "others");
      std::thread other([&] {
        for (int step = 0; step < 4; ++step) run_step(two.get(), rank, job.size, step);
      });
      for (int step = 0; step < 4; ++step) run_step(one.get(), rank, job.size, step);
      other.join();
      tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
      check(tnt_reducer_stats(one.get(), &stats));
      EXPECT_EQ(stats.steps, 4U);
      EXPECT_EQ(stats.bytes, 4U * (75'000U * 4U + 20U));
      EXPECT_GT(stats.busy, 0.0);
      EXPECT_GE(stats.exposed, 0.0);
      for (const double part : {stats.pack, stats.wait, stats.reduce, stats.unpack}) EXPECT_GT(part, 0.0);
      EXPECT_LE(stats.pack + stats.wait + stats.reduce + stats.unpack, stats.busy);
      std::uint64_t steps = 0;
      check(tnt_reducer_tensor_steps(one.get(), 3, &steps));
      EXPECT_EQ(steps, 4U);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReducerProcessTest, ::testing::ValuesIn(tnt::testing::some_of({2, 3, 4, 8}, {2, 3})));

// An options struct from a header older than wire_dtype, with the wire type set in the environment.
TEST(ReducerProcess, TheEnvironmentsWireDtypeIsForThoseWhoAskForIt) {
  ASSERT_EQ(setenv("TNT_GRADIENT_DTYPE", "bfloat16", 1), 0);
  run_processes(2, [](int /*rank*/) {
    const Joined job;
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    const auto bytes_with = [&](std::size_t size, int wire) {
      options.size = size;
      options.wire_dtype = wire;
      tnt_reducer_t made = nullptr;
      check(tnt_reducer_create(job.world, tensors.data(), 1, &options, &made));
      const Reducer reducer(made);
      tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
      check(tnt_reducer_bucket(made, 0, &bucket));
      EXPECT_EQ(bucket.bytes, bucket.count * tnt_dtype_size(bucket.dtype));
      return bucket.bytes;
    };
    EXPECT_EQ(bytes_with(sizeof(options), TNT_WIRE_DEFAULT), 140'000U);
    EXPECT_EQ(bytes_with(sizeof(options), TNT_WIRE_OWN), 280'000U);
    EXPECT_EQ(bytes_with(sizeof(options), TNT_FLOAT16), 140'000U);
    EXPECT_EQ(bytes_with(offsetof(tnt_reducer_options_t, wire_dtype), TNT_FLOAT16), 280'000U);
  });
  ASSERT_EQ(unsetenv("TNT_GRADIENT_DTYPE"), 0);
}

TEST(ReducerProcess, WireDtypesThatDifferAreNamed) {
  run_processes(3, [](int rank) {
    const Joined job;
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    if (rank == 2) options.wire_dtype = TNT_BFLOAT16;
    tnt_reducer_t reducer = nullptr;
    EXPECT_EQ(tnt_reducer_create(job.world, tensors.data(), tensors.size(), &options, &reducer), TNT_MISMATCH);
    EXPECT_STREQ(tnt_last_error(),
                 "rank 2 and rank 0 do not train the same model: the type on the wire (gradient_dtype, TNT_GRADIENT_DTYPE) is "
                 "bfloat16 on rank 2, each tensor's own on rank 0");
  });
}

tnt_status_t create_with(tnt_comm_t comm, int determinism, tnt_reducer_t* reducer) {
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  options.determinism = determinism;
  return tnt_reducer_create(comm, tensors.data(), tensors.size(), &options, reducer);
}

TEST(ReducerProcess, DeterminismThatDiffersIsNamed) {
  run_processes(3, [](int rank) {
    const Joined job;
    tnt_reducer_t reducer = nullptr;
    EXPECT_EQ(create_with(job.world, rank == 2 ? TNT_DETERMINISM_RANKS : TNT_DETERMINISM_DEFAULT, &reducer), TNT_MISMATCH);
    const std::string message = tnt_last_error();
    EXPECT_NE(message.find("the same bits on any number of ranks (determinism) on rank 2, "), std::string::npos) << message;
    // in host memory the bits are the same in every run
    check(create_with(job.world, rank == 2 ? TNT_DETERMINISM_RUN : TNT_DETERMINISM_DEFAULT, &reducer));
    check(tnt_reducer_destroy(reducer));
  });
}

// Four shards on one, two and four ranks, through the C API.
TEST(ReducerProcess, ShardsHaveTheSameSumOnAnyNumberOfRanks) {
  const std::array<float, 4> shards{1.0F, 0x1p-24F, 0x1p-24F, 0x1p-24F};  // in the order of the ranks 1
  for (const int ranks : {1, 2, 4}) {
    run_processes(ranks, [&](int rank) {
      const Joined job;
      const tnt_tensor_t tensor{"kernel", 1, TNT_FLOAT32};
      tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
      options.determinism = TNT_DETERMINISM_RANKS;
      tnt_reducer_t made = nullptr;
      check(tnt_reducer_create(job.world, &tensor, 1, &options, &made));
      const Reducer reducer(made);
      const auto* own = shards.data() + rank * (4 / ranks);
      const auto n = static_cast<std::size_t>(4 / ranks);
      const std::array<const void*, 4> terms{own, own + 1, own + 2, own + 3};
      const std::array<double, 4> ones{1.0, 1.0, 1.0, 1.0};
      float sum = 0.0F;
      check(tnt_add_scaled(terms.data(), ones.data(), n, &sum, 1, TNT_FLOAT32));
      check(tnt_reducer_ready(made, 0, &sum, &sum, 1.0, nullptr));
      check(tnt_reducer_finish(made, nullptr));
      EXPECT_EQ(sum, 1.0F + 0x1p-23F);
    });
  }
}

TEST(ReducerProcess, OnlyTheOwnerOfATensorGetsItsSum) {
  run_processes(3, [](int rank) {
    const Joined job;
    constexpr int owners[] = {2, 0, 0, 2};
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.owners = owners;
    tnt_reducer_t made = nullptr;
    check(tnt_reducer_create(job.world, tensors.data(), tensors.size(), &options, &made));
    const Reducer reducer(made);
    std::vector<Array> values;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      values.push_back(gradient(tensor, rank, 0));
      check(tnt_reducer_ready(made, tensor, values[tensor].data(), values[tensor].data(), 1.0, nullptr));
    }
    check(tnt_reducer_finish(made, nullptr));
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const std::vector<Array> in{gradient(tensor, 0, 0), gradient(tensor, 1, 0), gradient(tensor, 2, 0)};
      const Array sum = reduced(in, TNT_SUM);
      EXPECT_EQ(values[tensor], owners[tensor] == rank ? sum : gradient(tensor, rank, 0)) << tensors[tensor].name;
    }
  });
}

TEST(ReducerProcess, OwnersThatDifferAreNamed) {
  run_processes(2, [](int rank) {
    const Joined job;
    const int owners[] = {0, rank, 0, 0};
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.owners = owners;
    tnt_reducer_t reducer = nullptr;
    EXPECT_EQ(tnt_reducer_create(job.world, tensors.data(), tensors.size(), &options, &reducer), TNT_MISMATCH);
    EXPECT_STREQ(tnt_last_error(),
                 "rank 1 and rank 0 do not train the same model: tensor 1 is 'kernel' (5000 float32, owned by rank 1) on rank "
                 "1, 'kernel' (5000 float32, owned by rank 0) on rank 0");
  });
}

TEST(ReducerProcess, BucketsFollowTheOrderOfArrival) {
  run_processes(2, [](int /*rank*/) {
    const Joined job;
    constexpr std::size_t gradient_order[] = {1, 2, 0};
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.fusion_threshold = 0;
    options.gradient_order = gradient_order;
    tnt_reducer_t made = nullptr;
    check(tnt_reducer_create(job.world, tensors.data(), 3, &options, &made));
    const Reducer reducer(made);
    std::size_t threshold = 1;
    check(tnt_reducer_fusion_threshold(made, &threshold));
    EXPECT_EQ(threshold, 0U);
    for (std::size_t index = 0; index < 3; ++index) {
      tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
      check(tnt_reducer_bucket(made, index, &bucket));
      EXPECT_EQ(bucket.tensors[0], gradient_order[index]);
    }
  });
}

// The values sent in 16 bits, as a C program's hook sees them.
TEST(ReducerProcess, AHookSeesThePackedBucket) {
  run_processes(2, [](int rank) {
    const Joined job;
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.wire_dtype = TNT_FLOAT16;
    tnt_reducer_t made = nullptr;
    check(tnt_reducer_create(job.world, tensors.data(), tensors.size(), &options, &made));
    const Reducer reducer(made);
    struct Seen {
      std::size_t calls = 0;
      std::size_t last_offset = 0;
      std::size_t elements = 0;
      std::size_t tensors = 0;
    } seen;
    const tnt_bucket_hook_t hook = [](tnt_packed_bucket_t* bucket, void* user_data) {
      auto& all = *static_cast<Seen*>(user_data);
      EXPECT_EQ(bucket->index, all.calls++);
      EXPECT_EQ(bucket->dtype, bucket->tensors[0] == 3 ? TNT_BFLOAT16 : TNT_FLOAT16);
      EXPECT_NE(bucket->data, nullptr);
      EXPECT_EQ(bucket->stream, nullptr);
      EXPECT_EQ(bucket->offsets[0], 0U);
      all.last_offset = bucket->offsets[bucket->n_tensors - 1];
      all.elements += bucket->count;
      all.tensors += bucket->n_tensors;
      return 0;
    };
    check(tnt_reducer_set_hook(made, hook, &seen));
    run_step(made, rank, 2, 0);
    EXPECT_EQ(seen.calls, 2U);
    EXPECT_EQ(seen.elements, 75'010U);
    EXPECT_EQ(seen.tensors, 4U);
  });
}

TEST(ReducerProcess, AHookThatFailsIsNamedOnAllRanks) {
  for (const bool says_why : {false, true}) {
    run_processes(3, [&](int rank) {
      const Joined job;
      const Reducer reducer = make(job.world, 0);
      const tnt_bucket_hook_t hook = [](tnt_packed_bucket_t* bucket, void* user_data) {
        if (bucket->index != 2) return 0;
        // without destroying it
        if (user_data != nullptr) std::fill(std::begin(bucket->reason), std::end(bucket->reason), 'x');
        return 7;
      };
      bool why = says_why;
      if (rank == 1) check(tnt_reducer_set_hook(reducer.get(), hook, why ? &why : nullptr));
      std::vector<Array> values;
      for (std::size_t i = 0; i < tensors.size(); ++i) values.push_back(gradient(i, rank, 0));
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const tnt_status_t ready = tnt_reducer_ready(reducer.get(), i, values[i].data(), values[i].data(), 1.0, nullptr);
        EXPECT_TRUE(ready == TNT_SUCCESS || ready == TNT_ABORTED);  // the others may have noticed in the meantime
      }
      EXPECT_EQ(tnt_reducer_finish(reducer.get(), nullptr), TNT_ABORTED);
      EXPECT_EQ(std::string(tnt_last_error()),
                "rank 1: gradients bucket 2: 19.5 KiB, 1 tensor, kernel: the bucket hook failed: " +
                    (says_why ? std::string(255, 'x') : std::string("it returned 7")));
    });
  }
}

TEST(ReducerProcess, PlansThatDifferAreNamedAndTheWorldGoesOn) {
  run_processes(3, [](int rank) {
    const Joined job;
    auto changed = tensors;
    if (rank == 2) changed[1].count = 5001;
    tnt_reducer_t reducer = nullptr;
    EXPECT_EQ(tnt_reducer_create(job.world, changed.data(), changed.size(), nullptr, &reducer), TNT_MISMATCH);
    EXPECT_EQ(reducer, nullptr);
    EXPECT_STREQ(tnt_last_error(),
                 "rank 2 and rank 0 do not train the same model: tensor 1 is 'kernel' (5001 float32) on rank 2, 'kernel' (5000 "
                 "float32) on rank 0");
    run_step(make(job.world, 0).get(), rank, 3, 0);
  });
}

TEST(ReducerProcess, ADeadPeerIsNamedWithBucketAndTensor) {
  ProcessJob job(3, [](int rank) {
    const Joined joined;
    const Reducer reducer = make(joined.world, 0, "loss A");
    run_step(reducer.get(), rank, 3, 0);
    Array bias = gradient(3, rank, 1);
    Array scale = gradient(2, rank, 1);
    Array kernel = gradient(1, rank, 1);
    check(tnt_reducer_ready(reducer.get(), 3, bias.data(), bias.data(), 1.0, nullptr));
    check(tnt_reducer_ready(reducer.get(), 2, scale.data(), scale.data(), 1.0, nullptr));
    check(tnt_reducer_wait_bucket(reducer.get(), 1, nullptr));
    if (rank == 1) raise(SIGKILL);
    check(tnt_reducer_ready(reducer.get(), 1, kernel.data(), kernel.data(), 1.0, nullptr));
    EXPECT_EQ(tnt_reducer_wait_bucket(reducer.get(), 2, nullptr), TNT_PEER_LOST);
    const std::string message = tnt_last_error();
    EXPECT_NE(message.find("rank 1 (process "), std::string::npos) << message;
    EXPECT_NE(message.find("loss A bucket 2: 19.5 KiB, 1 tensor, kernel"), std::string::npos) << message;
    EXPECT_EQ(tnt_reducer_finish(reducer.get(), nullptr), TNT_PEER_LOST);
    EXPECT_EQ(tnt_reducer_ready(reducer.get(), 0, kernel.data(), kernel.data(), 1.0, nullptr), TNT_PEER_LOST);
  });
  const auto endings = job.wait();
  EXPECT_EQ(endings[0].code, 0);
  EXPECT_EQ(endings[1].signal, SIGKILL);
  EXPECT_EQ(endings[2].code, 0);
}

TEST(ReducerProcess, ItsEndDoesNotWaitForOthers) {
  run_processes(2, [](int rank) {
    const Joined job;
    {
      Array bias = gradient(3, rank, 0);  // the reducer may read it until its end
      const Reducer reducer = make(job.world, 0);
      if (rank == 0) check(tnt_reducer_ready(reducer.get(), 3, bias.data(), bias.data(), 1.0, nullptr));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

}  // namespace
