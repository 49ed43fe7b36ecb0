// The reducer, with threads as ranks: sums, order, waiting, misuse, and destruction while gradients are still missing.
#include "reducer/reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/log.hpp"
#include "reducer/random_model.hpp"
#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::exact_values;
using testing::Model;
using testing::run_threads;

// Of all ranks, which are threads here.
std::shared_ptr<ProgressEngine> engine() {
  static const auto instance = std::make_shared<ProgressEngine>();
  return instance;
}

std::unique_ptr<Reducer> make(Communicator& world, Plan plan, double timeout = testing::default_timeout,
                              Overlap overlap = Overlap::automatic) {
  return std::make_unique<Reducer>(world.split(0, 0, call()), std::move(plan), ReducerOptions{"gradients", timeout, overlap},
                                   engine(), nullptr);
}

// Marks all gradients of a step ready, in this rank's own order, from two threads, every other tensor in place.
std::vector<Array> run_step(Reducer& reducer, const Model& model, int rank, int ranks, unsigned step) {
  std::vector<Array> in;
  std::vector<Array> out;
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    in.push_back(model.gradient(rank, step, tensor));
    out.push_back(in.back());
  }
  std::vector<std::size_t> order(model.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank) + 100 * step));
  const double scale = Model::scale(rank, step);
  const auto mark_ready = [&](std::size_t first) {
    for (std::size_t i = first; i < order.size(); i += 2) {
      const std::size_t tensor = order[i];
      const void* source = tensor % 2 == 0 ? out[tensor].data() : in[tensor].data();
      reducer.ready(tensor, {.in = scale == 0.0 ? nullptr : source, .out = out[tensor].data(), .scale = scale});
    }
  };
  std::thread other([&] { mark_ready(1); });
  mark_ready(0);
  other.join();
  reducer.finish();
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    const bool needed = reducer.plan().tensors()[tensor].is_needed_by(rank);
    EXPECT_EQ(out[tensor], needed ? model.sum(ranks, step, tensor) : in[tensor]) << "tensor " << tensor << " in step " << step;
  }
  return out;
}

// All ranks, which are threads here, write all messages.
struct LogSettings {
  LogSettings() { configure_log(of(LogLevel::info)); }
  ~LogSettings() { configure_log(of(LogLevel::warning)); }
  static Settings of(LogLevel level) {
    Settings settings;
    settings.log_level = level;
    return settings;
  }
};

class ReducerTest : public ::testing::TestWithParam<int> {};

TEST_P(ReducerTest, SumsWhateverTheOrder) {
  for (unsigned seed = 0; seed < static_cast<unsigned>(testing::effort(8, 4)); ++seed) {
    const Model model(seed);
    run_threads(GetParam(), [&](Communicator& world) {
      const auto reducer = make(world, model.plan());
      for (unsigned step = 0; step < 4; ++step) run_step(*reducer, model, world.rank(), world.size(), step);
      std::uint64_t bytes = 0;
      for (const Bucket& bucket : reducer->plan().buckets()) bytes += bucket.bytes();
      const ReducerStats stats = reducer->stats();
      EXPECT_EQ(stats.steps, 4U);
      EXPECT_EQ(stats.bytes, 4 * bytes);
      EXPECT_GT(stats.busy_ns, 0);
      EXPECT_GE(stats.exposed_ns, 0);
      for (std::size_t tensor = 0; tensor < model.size(); ++tensor) EXPECT_EQ(reducer->tensor_steps(tensor), 4U);
    });
  }
}

TEST_P(ReducerTest, TwoAtOnceDoNotMix) {
  const Model first(100);
  const Model second(101);
  run_threads(GetParam(), [&](Communicator& world) {
    const auto one = make(world, first.plan());
    const auto two = make(world, second.plan());
    std::thread other([&] {
      for (unsigned step = 0; step < 3; ++step) run_step(*two, second, world.rank(), world.size(), step);
    });
    for (unsigned step = 0; step < 3; ++step) run_step(*one, first, world.rank(), world.size(), step);
    other.join();
  });
}

// The results of the others' tensors are left alone.
TEST_P(ReducerTest, EachSumMayHaveAnOwner) {
  for (unsigned seed = 0; seed < static_cast<unsigned>(testing::effort(8, 4)); ++seed) {
    const Model model(seed);
    run_threads(GetParam(), [&](Communicator& world) {
      const auto reducer = make(world, model.plan_of_owners(world.size()));
      if (seed % 2 == 1) reducer->set_hook([](const PackedBucket&) { return std::nullopt; });
      for (unsigned step = 0; step < 3; ++step) run_step(*reducer, model, world.rank(), world.size(), step);
    });
  }
}

// While both ways are tried; ranks may have different settings.
TEST_P(ReducerTest, WhoeverReducesTheSumsAreRight) {
  const Model model(102);
  run_threads(GetParam(), [&](Communicator& world) {
    const Overlap mode = std::array{Overlap::automatic, Overlap::off, Overlap::on}[static_cast<std::size_t>(world.rank()) % 3];
    const auto reducer = make(world, model.plan(), testing::default_timeout, mode);
    for (unsigned step = 0; step < OverlapTuner::trial_ends + 2; ++step) {
      run_step(*reducer, model, world.rank(), world.size(), step);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReducerTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3})));

// Three tensors of one float each, one bucket each: 2 is bucket 0, 0 is bucket 2.
class ThreeBuckets : public ::testing::Test {
 protected:
  static Plan plan() { return {{{"first", 1, TNT_FLOAT32}, {"second", 1, TNT_FLOAT32}, {"third", 1, TNT_FLOAT32}}, 0}; }
};

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "accepted, no error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(ThreeBuckets, AnotherThreadMayWaitForEach) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = make(world, plan());
    for (int step = 0; step < 50; ++step) {
      std::array<float, 3> values{1, 2, 3};
      for (const std::size_t tensor : {0U, 1U, 2U}) {
        reducer->ready(tensor, {.in = &values[tensor], .out = &values[tensor]});
      }
      std::thread waiting([&] {
        for (const std::size_t bucket : {1U, 2U, 0U}) reducer->wait_bucket(bucket);
      });
      for (const std::size_t bucket : {0U, 1U, 2U}) reducer->wait_bucket(bucket);
      EXPECT_EQ(values, (std::array<float, 3>{2, 4, 6}));
      waiting.join();
    }
    EXPECT_EQ(reducer->tensor_steps(1), 50U);
  });
}

// Each rank waits for a bucket that the other one reduces only in its own wait for another bucket.
TEST_F(ThreeBuckets, WithoutOverlapRanksMayStillWaitInAnyOrder) {
  run_threads(2, [&](Communicator& world) {
    const auto one = make(world, plan(), testing::default_timeout, Overlap::off);
    const auto two = make(world, plan(), testing::default_timeout, Overlap::off);
    std::array<float, 3> value{1.0F, 2.0F, 3.0F};
    std::array<float, 3> other{4.0F, 5.0F, 6.0F};
    for (std::size_t tensor = 0; tensor < 3; ++tensor) {
      one->ready(tensor, {.in = &value[tensor], .out = &value[tensor]});
      two->ready(tensor, {.in = &other[tensor], .out = &other[tensor]});
    }
    (world.rank() == 0 ? one : two)->finish();
    (world.rank() == 0 ? two : one)->finish();
    EXPECT_EQ(value, (std::array<float, 3>{2.0F, 4.0F, 6.0F}));
    EXPECT_EQ(other, (std::array<float, 3>{8.0F, 10.0F, 12.0F}));
  });
}

TEST(Reducer, AWaitMayBeginBeforeAllGradientsAreThere) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = make(world, Plan({{"a", 1, TNT_FLOAT32}, {"b", 1, TNT_FLOAT32}}, 1000));
    std::array<float, 2> values{1, 2};
    reducer->ready(1, {.in = &values[1], .out = &values[1]});
    std::thread waiting([&] {
      reducer->wait_bucket(0);
      EXPECT_EQ(values, (std::array<float, 2>{2, 4}));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    reducer->ready(0, {.in = values.data(), .out = values.data()});
    waiting.join();
  });
}

TEST_F(ThreeBuckets, MisuseIsNamedAndHarmless) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = make(world, plan());
    std::array<float, 3> values{1, 2, 3};
    const auto mark_ready = [&](std::size_t tensor) {
      reducer->ready(tensor, {.in = &values[tensor], .out = &values[tensor]});
    };
    expect_refused([&] { reducer->wait_bucket(0); }, "'third'");
    expect_refused([&] { reducer->finish(); }, "'third' was not marked ready");
    expect_refused([&] { mark_ready(3); }, "tensor 3 is not in the plan of 3 tensors");
    expect_refused([&] { reducer->wait_bucket(3); }, "bucket 3 is not in the plan of 3 buckets");
    expect_refused([&] { (void)reducer->tensor_steps(3); }, "tensor 3");
    expect_refused([&] { reducer->ready(1, {.in = nullptr, .out = nullptr}); }, "the gradient of 'second' is NULL");
    mark_ready(2);
    expect_refused([&] { mark_ready(2); }, "'third' was marked ready twice");
    mark_ready(0);
    expect_refused([&] { reducer->finish(); }, "'second' was not marked ready");
    mark_ready(1);
    reducer->finish();
    EXPECT_EQ(values, (std::array<float, 3>{2, 4, 6}));
  });
}

// Whether the bucket is finished already must not matter.
TEST_F(ThreeBuckets, HandingOverTwiceIsRefusedEvenWhenTheBucketIsDone) {
  run_threads(1, [](Communicator& world) {
    const auto reducer = make(world, plan());
    float value = 1;
    reducer->ready(2, {.in = &value, .out = &value});
    while (reducer->tensor_steps(2) == 0) std::this_thread::yield();
    expect_refused([&] { reducer->ready(2, {.in = &value, .out = &value}); }, "'third' was marked ready twice");
    reducer->wait_bucket(0);
    reducer->ready(2, {.in = &value, .out = &value});  // the next step
  });
}

TEST_F(ThreeBuckets, AStepThatReducedNothingIsAnError) {
  run_threads(1, [](Communicator& world) {
    const auto reducer = make(world, plan());
    std::array<float, 3> values{};
    const auto mark_ready = [&](std::size_t tensor) {
      reducer->ready(tensor, {.in = &values[tensor], .out = &values[tensor]});
    };
    for (const std::size_t tensor : {0U, 1U, 2U}) mark_ready(tensor);
    reducer->finish();
    expect_refused([&] { reducer->finish(); }, "'third' was not marked ready");
    mark_ready(2);
    expect_refused([&] { reducer->finish(); }, "'second' was not marked ready");
    mark_ready(0);
    mark_ready(1);
    reducer->finish();
    EXPECT_EQ(reducer->tensor_steps(0), 2U);
  });
}

TEST_F(ThreeBuckets, AWaitForWhatNobodyBringsNamesTheTensor) {
  run_threads(1, [](Communicator& world) {
    const auto reducer =
        std::make_unique<Reducer>(world.split(0, 0, call()), Plan({{"a", 1, TNT_INT8}, {"b", 1, TNT_INT8}}, 1000),
                                  ReducerOptions{"name", 0.1}, engine(), nullptr);
    const char value = 1;
    reducer->ready(1, {.in = &value, .out = nullptr});
    try {
      reducer->wait_bucket(0);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_TIMEOUT);
      EXPECT_STREQ(error.what(),
                   "rank 0: bucket 0 of name waited 0.1 s for the gradient of 'a', which this rank did not mark ready");
    }
    reducer->ready(0, {.in = &value, .out = nullptr});
    reducer->finish();
  });
}

TEST_F(ThreeBuckets, ARankThatDoesNotComeIsNamedWithTheBucket) {
  const testing::ThreadJob job(2);
  const auto endings = job.run([](Communicator& world) {
    const auto reducer = make(world, plan(), world.rank() == 0 ? 0.3 : testing::default_timeout);
    float value = 1;
    if (world.rank() == 0) reducer->ready(2, {.in = &value, .out = &value});
    try {
      if (world.rank() == 0) reducer->wait_bucket(0);
    } catch (const Error&) {
      EXPECT_THROW(reducer->ready(1, {.in = &value, .out = &value}), Error);
      EXPECT_THROW(reducer->finish(), Error);
      throw;
    }
    barrier(world, call());
  });
  for (const auto& ending : endings) {
    ASSERT_TRUE(ending);
    EXPECT_EQ(ending->status(), TNT_TIMEOUT);
    const std::string message = ending->what();
    EXPECT_NE(message.find("rank 1 did not arrive within 0.3 s"), std::string::npos) << message;
    EXPECT_NE(message.find("gradients bucket 0: 4 B, 1 tensor, third"), std::string::npos) << message;
  }
}

TEST_F(ThreeBuckets, TheEndDoesNotWaitForOthers) {
  run_threads(2, [](Communicator& world) {
    auto reducer = make(world, plan());
    float value = 1;
    if (world.rank() == 0) {
      reducer->ready(2, {.in = &value, .out = &value});
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // now it waits for rank 1, most likely
    }
    reducer.reset();
    barrier(world, call());
  });
}

TEST_F(ThreeBuckets, TheNextReducerMayUseTheCommunicatorOfOneThatEndsBetweenSteps) {
  run_threads(2, [](Communicator& world) {
    std::unique_ptr<Communicator> comm = world.split(0, 0, call());
    const ReducerOptions options{.recycle = [&](std::unique_ptr<Communicator> unused) { comm = std::move(unused); }};
    std::array<float, 3> values{1, 2, 3};
    for (int life = 1; life <= 2; ++life) {
      const auto reducer = std::make_unique<Reducer>(std::move(comm), plan(), options, engine(), nullptr);
      for (std::size_t tensor = 0; tensor < 3; ++tensor) {
        reducer->ready(tensor, {.in = &values[tensor], .out = &values[tensor]});
      }
      reducer->finish();
    }
    EXPECT_EQ(values, (std::array<float, 3>{4, 8, 12}));
    ASSERT_NE(comm, nullptr);
    {
      Reducer reducer(std::move(comm), plan(), options, engine(), nullptr);
      reducer.ready(0, {.in = values.data(), .out = values.data()});
    }
    EXPECT_EQ(comm, nullptr) << "given back in the middle of a step";
  });
}

TEST(Reducer, TensorsTravelInTheWireDtype) {
  run_threads(3, [](Communicator& world) {
    const auto reducer =
        make(world, Plan({{"a", 1000, TNT_FLOAT32}, {"b", 10, TNT_INT32}, {"c", 5, TNT_FLOAT64}}, 1'000'000, TNT_BFLOAT16));
    std::vector<float> a(1000, 1.0F + 0x1p-9F);  // rounds to 1
    std::vector<std::int32_t> b(10, 1'000'001);
    std::vector<double> c(5, 3.0);
    reducer->ready(1, {.in = b.data(), .out = b.data()});
    reducer->ready(0, {.in = a.data(), .out = a.data()});
    reducer->ready(2, {.in = c.data(), .out = c.data(), .scale = 0.5});
    reducer->finish();
    EXPECT_EQ(a, std::vector<float>(1000, 3.0F));
    EXPECT_EQ(b, std::vector<std::int32_t>(10, 3'000'003));
    EXPECT_EQ(c, std::vector<double>(5, 4.5));
    EXPECT_EQ(reducer->stats().bytes, 1005U * 2 + 10U * 4);
  });
}

// Each rank's hook sees what the rank sends, scaled and in the wire type, in the order of the buckets, and may change it.
TEST(Reducer, AHookSeesAndChangesWhatIsSent) {
  for (const std::size_t count : {1U, 3000U, 300'000U}) {
    run_threads(3, [&](Communicator& world) {
      const auto reducer = make(world, Plan({{"a", count, TNT_FLOAT32}, {"b", count, TNT_FLOAT32}}, 0, TNT_BFLOAT16));
      std::vector<std::size_t> seen;
      reducer->set_hook([&](const PackedBucket& packed) -> std::optional<std::string> {
        const std::size_t bucket = packed.bucket;
        seen.push_back(bucket);
        EXPECT_EQ(packed.count, count);
        EXPECT_EQ(packed.offsets.size(), 1U);
        auto* data = static_cast<std::uint16_t*>(packed.data);
        const std::uint16_t one = 0x3f80;
        const std::uint16_t two = 0x4000;
        EXPECT_TRUE(std::all_of(data, data + count, [&](std::uint16_t bits) { return bits == (bucket == 1 ? one : two); }));
        if (world.rank() == 1 && bucket == 0) data[count - 1] = 0;
        return std::nullopt;
      });
      for (int step = 0; step < 2; ++step) {
        std::vector<float> a(count, 2.0F);
        std::vector<float> b(count, 4.0F);
        reducer->ready(0, {.in = a.data(), .out = a.data(), .scale = 0.5});
        reducer->ready(1, {.in = b.data(), .out = b.data(), .scale = 0.5});
        reducer->finish();
        EXPECT_EQ(a, std::vector<float>(count, 3.0F));
        EXPECT_EQ(b.back(), 4.0F);
        b.back() = 6.0F;
        EXPECT_EQ(b, std::vector<float>(count, 6.0F));
      }
      EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 0, 1}));
      reducer->set_hook({});
      std::vector<float> again(count, 1.0F);
      reducer->ready(0, {.in = again.data(), .out = again.data()});
      reducer->ready(1, {.in = again.data(), .out = nullptr});
      reducer->finish();
      EXPECT_EQ(again.back(), 3.0F);
      EXPECT_EQ(seen.size(), 4U);
    });
  }
}

// On one rank, on some, on all at once: one message, soon, on every rank, including those without a hook.
TEST_F(ThreeBuckets, AHookThatFailsEndsTheJobWithOneMessage) {
  for (const int failing : {1, 2, 3}) {
    const std::string message = testing::common_error(3, TNT_ABORTED, [&](Communicator& world) {
      const auto reducer = make(world, plan());
      if (world.rank() < failing) {
        reducer->set_hook([](const PackedBucket& packed) -> std::optional<std::string> {
          if (packed.bucket == 1) throw std::runtime_error("the norm is not a number");
          return std::nullopt;
        });
      }
      std::array<float, 3> values{1, 2, 3};
      for (const std::size_t tensor : {0U, 1U, 2U}) reducer->ready(tensor, {.in = &values[tensor], .out = &values[tensor]});
      reducer->finish();
    });
    EXPECT_EQ(message.find("rank "), 0U) << message;
    EXPECT_LT(message.at(5) - '0', failing) << message;
    EXPECT_EQ(message.substr(6),
              ": gradients bucket 1: 4 B, 1 tensor, second: the bucket hook failed: the norm is not a number");
  }
}

// Of one rank: memory that is missing, or here a log that throws. The others do not wait for it until their deadline.
TEST(Reducer, AnExceptionBetweenCollectivesEndsTheJobWithOneMessage) {
  const LogSettings log_of_all;
  std::atomic<bool> thrown{false};
  set_log_sink([&](LogLevel, int, const std::string&) {
    if (!thrown.exchange(true)) throw std::runtime_error("no space left");
  });
  const std::string message = testing::common_error(3, TNT_ABORTED, [](Communicator& world) {
    constexpr std::size_t count = 100'000;  // more than what a caller reduces itself
    const auto reducer = make(world, Plan({{"a", count, TNT_FLOAT32}}, 0));
    std::vector<float> values(count);
    for (unsigned step = 0; step < OverlapTuner::trial_ends + 2; ++step) {
      reducer->ready(0, {.in = values.data(), .out = values.data()});
      reducer->finish();
    }
  });
  set_log_sink({});
  EXPECT_EQ(message.find("rank "), 0U) << message;
  EXPECT_EQ(message.substr(6), ": gradients bucket 0: 390.6 KiB, 1 tensor, a: no space left");
}

TEST_F(ThreeBuckets, AHookIsSetBetweenSteps) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = std::make_unique<Reducer>(
        world.split(0, 0, call()), Plan({{"a", 1, TNT_INT8}, {"b", 1, TNT_INT8}}, 1000), ReducerOptions{}, engine(), nullptr);
    int calls = 0;
    const auto hook = [&](const PackedBucket&) -> std::optional<std::string> {
      ++calls;
      return std::nullopt;
    };
    char value = 1;
    reducer->ready(1, {.in = &value, .out = nullptr});
    expect_refused([&] { reducer->set_hook(hook); }, "while gradients bucket 0: 2 B, 2 tensors, b … is in a step");
    reducer->ready(0, {.in = &value, .out = nullptr});
    reducer->finish();
    EXPECT_EQ(calls, 0);
    reducer->set_hook(hook);
    reducer->ready(0, {.in = &value, .out = nullptr});
    reducer->ready(1, {.in = &value, .out = &value});
    reducer->finish();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(value, 2);
  });
}

TEST(Reducer, WithoutTensorsEveryStepIsDone) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = make(world, Plan({}, 1000));
    reducer->finish();
    reducer->finish();
    EXPECT_EQ(reducer->stats().steps, 0U);
  });
}

TEST(Reducer, NothingTimesZeroIsZero) {
  run_threads(2, [](Communicator& world) {
    const auto reducer = make(world, Plan({{"a", 3, TNT_FLOAT32}}, 1000));
    std::array<float, 3> values{};
    values.fill(world.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 5.0F);
    reducer->ready(0, {.in = values.data(), .out = values.data(), .scale = world.rank() == 0 ? 0.0 : 2.0});
    reducer->finish();
    EXPECT_EQ(values, (std::array<float, 3>{10, 10, 10}));
  });
}

}  // namespace
}  // namespace tnt
