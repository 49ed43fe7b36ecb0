// The reducer of gradients in device memory, on simulated devices that check all ordering and run the GPU's kernels, over the
// fake NCCL: sums, views, captures, the same bits on any number of ranks, misuse and failures.
#include "reducer/device_reducer.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>

#include "base/read_text.hpp"
#include "nccl/nccl_job.hpp"
#include "reducer/random_model.hpp"
#include "support/effort.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::Backend;
using testing::exact_values;
using testing::Model;
using testing::NcclTest;
using testing::SimulatedDevice;

// The options of a reducer.
struct Below {
  Backend backend = Backend::nccl;
  const testing::Kernels* kernels = &testing::simt_kernels();
};

// A rank with a trainer's stream. The device checks the accesses of the trainer's kernels.
class Trainer {
 public:
  Trainer(Communicator& host, Plan plan, const DeviceReducerOptions& options, const Below& below = {}, Trace* trace = nullptr)
      : device(std::make_shared<SimulatedDevice>(host.rank(), simulation(host.rank()), *below.kernels)),
        stream(*device),
        other(*device),
        reducer(device, kept(testing::make_communicator(below.backend, *device, host, testing::options(timeout))),
                std::move(plan), options, trace) {}

  // A kernel that computes a gradient.
  void compute(void* to, const Array& values, StreamHandle on) const {
    device->enqueue(
        on, {}, {{to, values.bytes().size()}},
        [to, from = values] { std::ranges::copy(from.bytes(), static_cast<std::byte*>(to)); }, "backward");
  }
  // A kernel that reads a result.
  void expect(const void* result, const Array& values, const std::string& what, StreamHandle on) const {
    const std::span<const std::byte> found(static_cast<const std::byte*>(result), values.bytes().size());
    device->enqueue(
        on, {{result, found.size()}}, {}, [=] { EXPECT_TRUE(std::ranges::equal(found, values.bytes())) << what; }, "optimizer");
  }
  [[nodiscard]] DeviceBuffer memory(const Array& like) const {
    return {*device, std::max<std::size_t>(like.bytes().size(), 1), stream.get()};
  }

  static testing::SimulationOptions simulation(int rank) {
    return {.seed = static_cast<unsigned>(rank + 1), .progress = testing::Progress::thread};
  }

  static inline double timeout = testing::default_timeout;
  std::shared_ptr<SimulatedDevice> device;
  Stream stream;
  Stream other;
  DeviceCommunicator* comm = nullptr;
  std::vector<DeviceBuffer> gradients;  // of tests that fail: must outlive the reducer
  DeviceReducer reducer;

 private:
  std::unique_ptr<DeviceCommunicator> kept(std::unique_ptr<DeviceCommunicator> made) {
    comm = made.get();
    return made;
  }
};

void run_trainers(int ranks, const Plan& plan, const std::function<void(Trainer&, int rank)>& body,
                  const DeviceReducerOptions& options = {}, const Below& below = {}) {
  testing::run_threads(ranks, [&](Communicator& host) {
    Trainer trainer(host, plan, options, below);
    body(trainer, host.rank());
    trainer.device->synchronize(trainer.stream.get());
  });
}

struct Job {
  Backend backend;
  int ranks;
  unsigned models;
  bool simt = false;
};
class DeviceReducerTest : public NcclTest, public ::testing::WithParamInterface<Job> {};

// Steps follow each other without the host waiting. Gradients arrive in a different order on every rank, on two streams.
TEST_P(DeviceReducerTest, SumsWhateverTheOrder) {
  const Job& job = GetParam();
  for (unsigned seed = 0; seed < job.models; ++seed) {
    const Model model(seed);
    const auto train = [&](Trainer& trainer, int rank) {
      std::vector<DeviceBuffer> in;
      std::vector<DeviceBuffer> out;
      for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
        in.push_back(trainer.memory(model.gradient(0, 0, tensor)));
        out.push_back(trainer.memory(model.gradient(0, 0, tensor)));
      }
      Event computed(*trainer.device);
      Event used(*trainer.device);
      for (unsigned step = 0; step < 4; ++step) {
        std::vector<std::size_t> order(model.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank) + 100 * step));
        const double scale = Model::scale(rank, step);
        used.record(trainer.stream.get());
        used.wait_on(trainer.other.get());
        for (const std::size_t tensor : order) {
          const StreamHandle on = (tensor % 3 == 1 ? trainer.other : trainer.stream).get();
          void* const result = tensor % 2 == 0 ? in[tensor].get() : out[tensor].get();
          trainer.compute(in[tensor].get(), model.gradient(rank, step, tensor), on);
          trainer.reducer.ready(tensor, {.in = scale == 0.0 ? nullptr : in[tensor].get(), .out = result, .scale = scale}, on);
        }
        trainer.reducer.finish(trainer.stream.get());
        for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
          trainer.expect((tensor % 2 == 0 ? in : out)[tensor].get(), model.sum(job.ranks, step, tensor),
                         fmt::format("tensor {} in step {}", tensor, step), trainer.stream.get());
        }
      }
      EXPECT_EQ(trainer.reducer.stats().steps, 4U);
      for (std::size_t tensor = 0; tensor < model.size(); ++tensor) EXPECT_EQ(trainer.reducer.tensor_steps(tensor), 4U);
      trainer.device->synchronize(trainer.stream.get());
    };
    run_trainers(job.ranks, model.plan(), train, {},
                 {.backend = job.backend, .kernels = &(job.simt ? testing::simt_kernels() : testing::cpu_kernels())});
  }
}

// The GPU's kernels are slow on the CPU.
INSTANTIATE_TEST_SUITE_P(
    Ranks, DeviceReducerTest,
    ::testing::ValuesIn(testing::some_of<Job>(
        {{Backend::nccl, 1, 4},
         {Backend::nccl, 2, 4},
         {Backend::nccl, 3, 4},
         {Backend::nccl, 4, 4},
         {Backend::nccl, 8, 4},
         {Backend::nccl, 2, 1, true},
         {Backend::staged, 2, 4},
         {Backend::hierarchical, 3, 2},
         {Backend::hierarchical, 4, 2}},
        {{Backend::nccl, 3, 2}, {Backend::nccl, 2, 1, true}, {Backend::staged, 2, 2}, {Backend::hierarchical, 3, 1}})),
    [](const auto& info) {
      return testing::name_of(info.param.backend) + std::to_string(info.param.ranks) + (info.param.simt ? "Simt" : "");
    });

// Five tensors in three buckets: 4 and 3; 2 and 1; 0.
constexpr std::size_t count = 300;
Plan five_tensors(std::optional<tnt_dtype_t> wire = std::nullopt) {
  std::vector<TensorSpec> specs;
  for (const char* name : {"a", "b", "c", "d", "e"}) specs.push_back({name, count, TNT_FLOAT32});
  return {specs, 2 * count * dtype_size(wire.value_or(TNT_FLOAT32)), wire};
}

Array gradient(int rank, std::size_t tensor, unsigned step = 0) {
  return exact_values(TNT_FLOAT32, count, static_cast<unsigned>(rank) + 8 * (static_cast<unsigned>(tensor) + 5 * step));
}

Array sum(int ranks, std::size_t tensor, unsigned step = 0) {
  std::vector<Array> in;
  for (int rank = 0; rank < ranks; ++rank) in.push_back(gradient(rank, tensor, step));
  return testing::reduced(in, TNT_SUM);
}

void expect_refused(const std::function<void()>& body, const std::string& part, tnt_status_t status = TNT_INVALID_ARGUMENT) {
  try {
    body();
    ADD_FAILURE() << "accepted, no error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

class FiveTensors : public NcclTest {
 protected:
  // Addresses of gradients and results.
  static std::vector<DeviceBuffer> buffers(const Trainer& trainer) {
    std::vector<DeviceBuffer> result;
    for (std::size_t tensor = 0; tensor < 5; ++tensor) result.push_back(trainer.memory(Array(TNT_FLOAT32, count)));
    return result;
  }
  static void step(Trainer& trainer, int rank, int ranks, unsigned step, const std::vector<DeviceBuffer>& buffers) {
    for (std::size_t tensor = 5; tensor-- > 0;) {
      trainer.compute(buffers[tensor].get(), gradient(rank, tensor, step), trainer.stream.get());
      trainer.reducer.ready(tensor, {.in = buffers[tensor].get(), .out = buffers[tensor].get()}, trainer.stream.get());
    }
    trainer.reducer.finish(trainer.stream.get());
    for (std::size_t tensor = 0; tensor < 5; ++tensor) {
      trainer.expect(buffers[tensor].get(), sum(ranks, tensor, step), fmt::format("tensor {} in step {}", tensor, step),
                     trainer.stream.get());
    }
  }
  // Of the sums of a step, when the trainer's stream has waited for it.
  static void expect_statistics(Trainer& trainer, int ranks, unsigned step) {
    trainer.device->synchronize(trainer.stream.get());
    const auto found = trainer.device->values<gpu::Statistics>(trainer.reducer.statistics(), 3);
    for (std::size_t bucket = 0; bucket < 3; ++bucket) {
      double squares = 0;
      for (const std::size_t tensor : trainer.reducer.plan().buckets()[bucket].tensors) {
        for (std::size_t i = 0; i < count; ++i) squares += std::pow(sum(ranks, tensor, step).get(i), 2);
      }
      EXPECT_EQ(found[bucket].sum_of_squares, squares) << bucket;  // whole numbers: exact
      EXPECT_EQ(found[bucket].non_finite, 0U);
    }
  }
};

TEST_F(FiveTensors, TravelInAWireDtype) {
  for (const tnt_dtype_t wire : {TNT_BFLOAT16, TNT_FLOAT16}) {
    run_trainers(2, five_tensors(wire), [&](Trainer& trainer, int rank) {
      const auto memory = buffers(trainer);
      for (unsigned i = 0; i < 2; ++i) step(trainer, rank, 2, i, memory);  // small whole numbers: exact in 16 bits
    });
  }
}

// Slices travel as bytes and are summed by our kernel.
TEST_F(FiveTensors, TravelInEightBits) {
  for (const tnt_dtype_t wire : {TNT_FLOAT8_E4M3, TNT_FLOAT8_E5M2}) {
    for (const auto& [backend, ranks] :
         {std::pair{Backend::nccl, 1}, {Backend::nccl, 3}, {Backend::staged, 2}, {Backend::hierarchical, 4}}) {
      run_trainers(ranks, five_tensors(wire),
                   [&, ranks = ranks](Trainer& trainer, int rank) {
                     const auto memory = buffers(trainer);
                     for (unsigned i = 0; i < 2; ++i) step(trainer, rank, ranks, i, memory);  // exact
                   },
                   {.rank_invariant = true}, {.backend = backend});
    }
  }
}

// One rank communicates nothing of a bucket in 8 bits, between buckets that NCCL moves: unpacking must not follow those.
TEST_F(FiveTensors, ABucketThatDoesNotTravelIsUnpackedAfterItsOwnPack) {
  const Plan plan({{"first", 40, TNT_FLOAT32}, {"steps", 40, TNT_INT64}, {"last", 40, TNT_FLOAT32}}, 0, TNT_FLOAT8_E4M3);
  run_trainers(
      1, plan,
      [&](Trainer& trainer, int /*rank*/) {
        const StreamHandle stream = trainer.stream.get();
        std::vector<Array> values;
        std::vector<DeviceBuffer> memory;
        for (const TensorSpec& spec : plan.tensors()) {
          values.push_back(testing::repeated(spec.dtype, spec.count, [](std::size_t i) { return static_cast<double>(i % 8); }));
          memory.push_back(trainer.memory(values.back()));
        }
        for (int step = 0; step < 8; ++step) {
          for (std::size_t tensor = memory.size(); tensor-- > 0;) {
            trainer.compute(memory[tensor].get(), values[tensor], stream);
            trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, stream);
          }
          trainer.reducer.finish(stream);
          for (std::size_t tensor = 0; tensor < memory.size(); ++tensor) {
            trainer.expect(memory[tensor].get(), values[tensor], plan.tensors()[tensor].name, stream);
          }
        }
      },
      {.rank_invariant = true});
}

// Each thread has its own cudaStreamPerThread, on which only the thread itself can record an event.
TEST_F(FiveTensors, ThreadsMayUseTheirDefaultStreams) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    auto* const own = reinterpret_cast<StreamHandle>(per_thread_stream);  // NOLINT(performance-no-int-to-ptr)
    const auto memory = buffers(trainer);
    trainer.device->synchronize(trainer.stream.get());
    for (unsigned i = 0; i < 2; ++i) {
      std::latch all(5);  // a thread that has ended may leave its stream to the next one
      std::vector<std::thread> threads;
      for (std::size_t tensor = 0; tensor < 5; ++tensor) {
        threads.emplace_back([&, tensor] {
          SimulatedDevice::set_current(rank);
          trainer.compute(memory[tensor].get(), gradient(rank, tensor, i), own);
          trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, own);
          all.arrive_and_wait();
        });
      }
      for (std::thread& thread : threads) thread.join();
      trainer.reducer.finish(trainer.stream.get());
      for (std::size_t tensor = 0; tensor < 5; ++tensor) {
        trainer.expect(memory[tensor].get(), sum(2, tensor, i), fmt::format("tensor {}", tensor), trainer.stream.get());
      }
      trainer.device->synchronize(trainer.stream.get());
    }
  });
}

// On the caller's stream: an event before each bucket, one wait at the end, and nothing else. The host never waits.
TEST_F(FiveTensors, CallersGetEventsAndWaitsOnly) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    step(trainer, rank, 2, 0, memory);
    trainer.device->synchronize(trainer.stream.get());
    const int synchronized = trainer.device->calls(testing::Call::synchronize);
    const int packs = trainer.device->calls(testing::Call::pack);
    const int copies = trainer.device->calls(testing::Call::copy);
    const int records = trainer.device->calls(testing::Call::record);
    for (std::size_t tensor = 5; tensor-- > 0;) {
      trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, trainer.stream.get());
    }
    trainer.reducer.finish(trainer.stream.get());
    EXPECT_EQ(trainer.device->calls(testing::Call::synchronize), synchronized);
    EXPECT_EQ(trainer.device->calls(testing::Call::pack), packs + 3);  // one launch for each bucket
    EXPECT_EQ(trainer.device->calls(testing::Call::copy), copies);     // nothing is uploaded
    // for each bucket: on the caller's stream, when it is packed, after NCCL's work, when it is unpacked
    EXPECT_EQ(trainer.device->calls(testing::Call::record), records + 3 * 4);
    const auto enqueued = trainer.device->enqueued_on(trainer.stream.get());
    EXPECT_EQ(std::count(enqueued.end() - 4, enqueued.end(), "record"), 3) << fmt::format("{}", fmt::join(enqueued, ", "));
    EXPECT_EQ(enqueued.back(), "wait");
  });
}

// A step as Keras has it: gradients one after another, and a wait for each bucket. What the host pays for a bucket are the
// calls of the runtime and of NCCL.
TEST_F(FiveTensors, ABucketTakesFewCalls) {
  constexpr std::size_t n = 8;
  constexpr std::array enqueuing{testing::Call::record, testing::Call::wait, testing::Call::pack, testing::Call::unpack};
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < n; ++i) specs.push_back({fmt::format("w{}", i), count, TNT_FLOAT32});
  run_trainers(2, Plan(specs, 0),
               [&](Trainer& trainer, int /*rank*/) {
                 const StreamHandle stream = trainer.stream.get();
                 const DeviceBuffer memory = trainer.memory(Array(TNT_FLOAT32, count * n));
                 const auto calls = [&] {
                   int sum = 0;
                   for (const testing::Call kind : enqueuing) sum += trainer.device->calls(kind);
                   return sum;
                 };
                 const auto queries = [&] { return trainer.device->calls(testing::Call::capturing); };
                 std::array<int, 2> before{};
                 for (int step = 0; step < 40; ++step) {
                   if (step == 24) before = {calls(), queries()};
                   for (std::size_t tensor = n; tensor-- > 0;) {
                     auto* const gradient = static_cast<float*>(memory.get()) + count * tensor;
                     trainer.reducer.ready(tensor, {.in = gradient, .out = gradient}, stream);
                   }
                   for (std::size_t bucket = 0; bucket < n; ++bucket) trainer.reducer.wait_bucket(bucket, stream);
                 }
                 const double buckets = 16.0 * n;
                 EXPECT_LE((calls() - before[0]) / buckets, 11.0);  // and one of NCCL
                 EXPECT_LE((queries() - before[1]) / buckets, 2.0);
               },
               {.timing = 16});
}

// A trainer may compute the next step on another stream, in other memory, before the previous step has ended.
TEST_F(FiveTensors, StepsMayKnowNothingOfEachOther) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const std::array memory{buffers(trainer), buffers(trainer)};
    trainer.device->synchronize(trainer.stream.get());
    for (unsigned i = 0; i < 8; ++i) {
      const StreamHandle stream = (i % 2 == 0 ? trainer.stream : trainer.other).get();
      const auto& own = memory[i % 2];
      for (std::size_t tensor = 5; tensor-- > 0;) {
        trainer.compute(own[tensor].get(), gradient(rank, tensor, i), stream);
        trainer.reducer.ready(tensor, {.in = own[tensor].get(), .out = own[tensor].get()}, stream);
      }
      trainer.reducer.finish(stream);
      for (std::size_t tensor = 0; tensor < 5; ++tensor) {
        trainer.expect(own[tensor].get(), sum(2, tensor, i), fmt::format("tensor {} in step {}", tensor, i), stream);
      }
    }
    trainer.device->synchronize(trainer.other.get());
  });
}

// Some gradients are computed in the bucket itself. If all of a bucket's are, it is neither packed nor unpacked.
TEST_F(FiveTensors, GradientsMayLieInTheBucket) {
  for (const bool statistics : {false, true}) {
    run_trainers(2, five_tensors(),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   std::vector<void*> places;
                   for (const std::size_t tensor : {0U, 1U, 2U, 3U, 4U}) {
                     places.push_back(tensor == 2 ? memory[tensor].get() : trainer.reducer.gradient_buffer(tensor));
                   }
                   for (unsigned i = 0; i < 3; ++i) {
                     for (std::size_t tensor = 5; tensor-- > 0;) {
                       trainer.compute(places[tensor], gradient(rank, tensor, i), trainer.stream.get());
                       trainer.reducer.ready(tensor, {.in = places[tensor], .out = places[tensor]}, trainer.stream.get());
                     }
                     trainer.reducer.finish(trainer.stream.get());
                     for (std::size_t tensor = 0; tensor < 5; ++tensor) {
                       trainer.expect(places[tensor], sum(2, tensor, i), fmt::format("tensor {}", tensor),
                                      trainer.stream.get());
                     }
                   }
                   EXPECT_EQ(trainer.device->calls(testing::Call::pack), 3);  // of the bucket with tensor 2
                   EXPECT_EQ(trainer.device->calls(testing::Call::unpack), statistics ? 9 : 3);
                   if (statistics) expect_statistics(trainer, 2, 2);
                 },
                 {.statistics = statistics, .gradients_in_buckets = true});
  }
}

TEST_F(FiveTensors, AViewMayBeScaled) {
  const auto train = [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    void* const view = trainer.reducer.gradient_buffer(4);
    trainer.compute(view, gradient(rank, 4), trainer.stream.get());
    trainer.reducer.ready(4, {.in = view, .out = view, .scale = 2.0}, trainer.stream.get());
    trainer.compute(memory[3].get(), gradient(rank, 3), trainer.stream.get());
    trainer.reducer.ready(3, {.in = memory[3].get(), .out = memory[3].get()}, trainer.stream.get());
    trainer.reducer.wait_bucket(0, trainer.stream.get());
    const Array twice = testing::repeated(TNT_FLOAT32, count, [](std::size_t i) { return 2 * sum(2, 4).get(i); });
    trainer.expect(view, twice, "a scaled view", trainer.stream.get());
  };
  run_trainers(2, five_tensors(), train, {.gradients_in_buckets = true});
}

TEST_F(FiveTensors, StatisticsAreOfTheSums) {
  run_trainers(2, five_tensors(),
               [&](Trainer& trainer, int rank) {
                 const auto memory = buffers(trainer);
                 step(trainer, rank, 2, 0, memory);
                 trainer.device->synchronize(trainer.stream.get());
                 expect_statistics(trainer, 2, 0);
               },
               {.statistics = true});
}

// The norm of all results, over buckets of both kinds: in the bucket and outside.
TEST_F(FiveTensors, ResultsAreClippedToANorm) {
  double squares = 0.0;
  for (std::size_t tensor = 0; tensor < 5; ++tensor) {
    for (std::size_t i = 0; i < count; ++i) squares += std::pow(sum(2, tensor).get(i), 2);
  }
  const double norm = std::sqrt(squares);
  for (const double limit : {norm / 8, 2 * norm}) {
    for (const auto wire : {std::optional<tnt_dtype_t>(), std::optional(TNT_BFLOAT16)}) {
      run_trainers(2, five_tensors(wire),
                   [&](Trainer& trainer, int rank) {
                     const auto memory = buffers(trainer);
                     const StreamHandle stream = trainer.stream.get();
                     std::vector<void*> places;
                     for (std::size_t tensor = 0; tensor < 5; ++tensor) {
                       const bool in_bucket = !wire && tensor % 2 == 0;
                       places.push_back(in_bucket ? trainer.reducer.gradient_buffer(tensor) : memory[tensor].get());
                     }
                     for (int i = 0; i < 3; ++i) {
                       for (std::size_t tensor = 5; tensor-- > 0;) {
                         trainer.compute(places[tensor], gradient(rank, tensor), stream);
                         trainer.reducer.ready(tensor, {.in = places[tensor], .out = places[tensor]}, stream);
                       }
                       expect_refused([&] { trainer.reducer.wait_bucket(0, stream); }, "with clip_norm no bucket is complete");
                       trainer.reducer.finish(stream);
                     }
                     trainer.device->synchronize(stream);
                     const double factor = std::min(1.0, limit / norm);
                     for (std::size_t tensor = 0; tensor < 5; ++tensor) {
                       const auto found = trainer.device->values<float>(places[tensor], count);
                       for (std::size_t i = 0; i < count; ++i) {
                         const double exact = factor * sum(2, tensor).get(i);
                         ASSERT_NEAR(found[i], exact, 2e-7 * std::abs(exact)) << "tensor " << tensor << ", element " << i;
                       }
                     }
                   },
                   {.gradients_in_buckets = true, .clip_norm = limit});
    }
  }
}

// A norm that is not finite changes nothing: loss scaling finds the infinity, and nothing became NaN.
TEST_F(FiveTensors, AnInfiniteNormChangesNothing) {
  run_trainers(
      2, five_tensors(),
      [&](Trainer& trainer, int rank) {
        const auto memory = buffers(trainer);
        const Array infinite = testing::repeated(TNT_FLOAT32, count, [](std::size_t) { return INFINITY; });
        for (std::size_t tensor = 5; tensor-- > 0;) {
          trainer.compute(memory[tensor].get(), tensor == 3 ? infinite : gradient(rank, tensor), trainer.stream.get());
          trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, trainer.stream.get());
        }
        trainer.reducer.finish(trainer.stream.get());
        for (std::size_t tensor = 0; tensor < 5; ++tensor) {
          trainer.expect(memory[tensor].get(), tensor == 3 ? infinite : sum(2, tensor), "unclipped", trainer.stream.get());
        }
      },
      {.clip_norm = 1.0});
}

// As a trainer of 16-bit gradients does: several backward passes are added up in float32.
TEST_F(FiveTensors, SumsAreAddedToMainGradients) {
  for (const bool in_bucket : {false, true}) {
    run_trainers(2, five_tensors(),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   const auto main = buffers(trainer);
                   const StreamHandle stream = trainer.stream.get();
                   for (const DeviceBuffer& buffer : main)
                     trainer.device->fill_zero(buffer.get(), count * sizeof(float), stream);
                   for (unsigned i = 0; i < 3; ++i) {
                     for (std::size_t tensor = 5; tensor-- > 0;) {
                       void* const from = in_bucket ? trainer.reducer.gradient_buffer(tensor) : memory[tensor].get();
                       trainer.compute(from, gradient(rank, tensor, i), stream);
                       if (i == 0)
                         expect_refused([&] { trainer.reducer.ready(tensor, {.in = from, .out = from}, stream); },
                                        "is its gradient");
                       trainer.reducer.ready(tensor, {.in = from, .out = main[tensor].get()}, stream);
                     }
                     trainer.reducer.finish(stream);
                   }
                   for (std::size_t tensor = 0; tensor < 5; ++tensor) {
                     const Array total = testing::repeated(TNT_FLOAT32, count, [&](std::size_t i) {
                       return sum(2, tensor, 0).get(i) + sum(2, tensor, 1).get(i) + sum(2, tensor, 2).get(i);
                     });
                     trainer.expect(main[tensor].get(), total, fmt::format("main gradient {}", tensor), stream);
                   }
                   expect_statistics(trainer, 2, 2);  // of the last step's sums
                 },
                 {.statistics = true, .accumulate = true, .gradients_in_buckets = in_bucket});
  }
}

// The GPU's memory of others' results is left alone, also where gradients lie in the bucket; a rank may own nothing.
TEST_F(FiveTensors, MayHaveOwners) {
  struct Case {
    Backend backend;
    int ranks;
    DeviceReducerOptions options;
  };
  for (const Case& to_test :
       {Case{Backend::nccl, 2, {}}, Case{Backend::nccl, 3, {.rank_invariant = true}},
        Case{Backend::nccl, 4, {.accumulate = true}}, Case{Backend::staged, 2, {}}, Case{Backend::hierarchical, 3, {}}}) {
    const auto owner = [&](std::size_t tensor) { return static_cast<int>(tensor) % std::min(to_test.ranks, 3); };
    std::vector<TensorSpec> specs = five_tensors().tensors();
    for (std::size_t tensor = 0; tensor < 5; ++tensor) specs[tensor].owner = owner(tensor);
    DeviceReducerOptions options = to_test.options;
    options.gradients_in_buckets = true;
    run_trainers(to_test.ranks, Plan(specs, 2 * count * sizeof(float)),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   const auto results = buffers(trainer);
                   const StreamHandle stream = trainer.stream.get();
                   for (const DeviceBuffer& buffer : results)
                     trainer.device->fill_zero(buffer.get(), count * sizeof(float), stream);
                   for (std::size_t tensor = 5; tensor-- > 0;) {
                     void* const from = tensor < 2 ? trainer.reducer.gradient_buffer(tensor) : memory[tensor].get();
                     trainer.compute(from, gradient(rank, tensor), stream);
                     trainer.reducer.ready(tensor, {.in = from, .out = results[tensor].get()}, stream);
                   }
                   trainer.reducer.finish(stream);
                   for (std::size_t tensor = 0; tensor < 5; ++tensor) {
                     const Array expected = owner(tensor) == rank ? sum(to_test.ranks, tensor) : Array(TNT_FLOAT32, count);
                     trainer.expect(results[tensor].get(), expected, fmt::format("tensor {}", tensor), stream);
                   }
                 },
                 options, {.backend = to_test.backend});
  }
}

TEST(DeviceReducerOptionsTest, ThatContradictEachOtherAreRefused) {
  const auto refused = [](tnt_dtype_t dtype, const DeviceReducerOptions& options, const std::string& part) {
    testing::run_threads(1, [&](Communicator& host) {
      expect_refused([&] { const Trainer trainer(host, Plan({{"w", 8, dtype}}, 1024, std::nullopt), options); }, part);
    });
  };
  refused(TNT_FLOAT32, {.accumulate = true, .clip_norm = 1.0}, "clip_norm with accumulate");
  refused(TNT_INT32, {.clip_norm = 1.0}, "'w' is int32, which has no norm");
  refused(TNT_FLOAT64, {.accumulate = true}, "'w' is reduced as float64");
  testing::run_threads(1, [&](Communicator& host) {
    const Plan owned({{"w", 8, TNT_FLOAT32, 0}}, 1024);
    expect_refused([&] { const Trainer trainer(host, owned, {.clip_norm = 1.0}); }, "owners with clip_norm");
    expect_refused([&] { const Trainer trainer(host, owned, {.statistics = true}); }, "owners with statistics");
    const Plan narrow({{"w", 8, TNT_FLOAT32}}, 1024, TNT_FLOAT8_E4M3);
    expect_refused([&] { const Trainer trainer(host, narrow, {}); }, "travel in float8_e4m3 with TNT_DETERMINISM_RANKS only");
  });
}

// The parts of a step are those of its buckets, and of the timeline. Nobody waits for them.
TEST_F(FiveTensors, AreTimed) {
  run_trainers(2, five_tensors(),
               [&](Trainer& trainer, int rank) {
                 const auto memory = buffers(trainer);
                 for (unsigned i = 0; i < 3; ++i) step(trainer, rank, 2, i, memory);
                 trainer.device->synchronize(trainer.stream.get());
                 const ReducerStats stats = trainer.reducer.stats();
                 EXPECT_EQ(stats.steps, 3U);
                 EXPECT_GT(stats.busy_ns, 0);
                 EXPECT_GT(stats.exposed_ns, 0);
                 EXPECT_EQ(std::accumulate(stats.phase_ns.begin(), stats.phase_ns.end(), std::int64_t{0}), stats.busy_ns);
                 EXPECT_EQ(trainer.reducer.stats().busy_ns, stats.busy_ns);  // counted once
               },
               {.timing = 1});
}

// The first four steps, and then each fourth: the others count as the last one that is known.
TEST_F(FiveTensors, SomeStepsAreTimed) {
  run_trainers(1, five_tensors(),
               [&](Trainer& trainer, int rank) {
                 const auto memory = buffers(trainer);
                 std::vector<ReducerStats> after{trainer.reducer.stats()};
                 const auto steps = [&](unsigned n) {
                   for (unsigned i = 0; i < n; ++i) step(trainer, rank, 1, i, memory);
                   trainer.device->synchronize(trainer.stream.get());
                   after.push_back(trainer.reducer.stats());
                 };
                 for (int i = 0; i < 11; ++i) steps(1);
                 const auto spent = [&](std::size_t i) {
                   std::array all{after[i + 1].busy_ns - after[i].busy_ns, after[i + 1].exposed_ns - after[i].exposed_ns};
                   EXPECT_EQ(after[i + 1].steps, after[i].steps + 1);
                   EXPECT_GT(all[0], 0) << i;
                   return all;
                 };
                 for (const std::size_t untimed : {5U, 6U, 7U}) EXPECT_EQ(spent(untimed), spent(4)) << untimed;
                 for (const std::size_t untimed : {9U, 10U}) EXPECT_EQ(spent(untimed), spent(8)) << untimed;
                 for (const std::size_t timed : {0U, 1U, 2U, 3U}) EXPECT_NE(spent(timed + 1), spent(timed)) << timed;
                 EXPECT_NE(spent(8), spent(7));
                 steps(5);  // 11 to 15, which nobody looks at in between: step 12 is timed
                 const std::int64_t of_five = after.back().busy_ns - after[11].busy_ns;
                 steps(1);  // 16
                 EXPECT_GT(of_five, 0);
                 EXPECT_EQ(std::accumulate(after.back().phase_ns.begin(), after.back().phase_ns.end(), std::int64_t{0}),
                           after.back().busy_ns);
               },
               {.timing = 4});
}

// A timeline has each step, also where a few would be timed.
TEST_F(FiveTensors, ATimelineHasEachStep) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("tnt-device-times-{}", getpid());
  testing::run_threads(1, [&](Communicator& host) {
    Trace trace("job", 0);
    trace.start(file.string());
    {
      Trainer trainer(host, five_tensors(), {.timing = 4}, {}, &trace);
      const auto memory = buffers(trainer);
      for (unsigned i = 0; i < 10; ++i) step(trainer, 0, 1, i, memory);
      trainer.device->synchronize(trainer.stream.get());
      (void)trainer.reducer.stats();
    }
    trace.stop();
  });
  const std::string text = read_text(file);
  std::filesystem::remove(file);
  std::size_t spans = 0;
  for (std::size_t at = text.find("unpack 2"); at != std::string::npos; at = text.find("unpack 2", at + 1)) ++spans;
  EXPECT_EQ(spans, 10U);
}

// Between the last gradient and the end of a step with clip_norm, the last bucket has no end yet.
TEST_F(FiveTensors, AreTimedWhileAStepIsNotFinished) {
  run_trainers(2, five_tensors(),
               [&](Trainer& trainer, int rank) {
                 const auto memory = buffers(trainer);
                 for (unsigned i = 0; i < 3; ++i) {
                   const std::int64_t before = trainer.reducer.stats().exposed_ns;
                   for (std::size_t tensor = 5; tensor-- > 0;) {
                     trainer.compute(memory[tensor].get(), gradient(rank, tensor, i), trainer.stream.get());
                     trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()},
                                           trainer.stream.get());
                   }
                   EXPECT_EQ(trainer.reducer.stats().exposed_ns, before);
                   trainer.reducer.finish(trainer.stream.get());
                   trainer.device->synchronize(trainer.stream.get());
                   EXPECT_GT(trainer.reducer.stats().exposed_ns, before);
                 }
               },
               {.timing = 1, .clip_norm = 1.0});
}

// Gradients of eight shards, summed on the ranks that have them and then over ranks, always in the same tree.
TEST_F(FiveTensors, TheSameBitsOnAnyNumberOfRanks) {
  constexpr std::size_t shards = 8;
  const auto leaf = [](std::size_t shard, std::size_t tensor) {
    std::mt19937 random(static_cast<unsigned>(shard * 5 + tensor));
    std::vector<float> values(count);
    for (float& value : values) value = std::normal_distribution<float>(0.0F, 1.0F)(random);
    return values;
  };
  std::vector<float> expected;
  const auto run = [&](int ranks, Backend backend) {
    run_trainers(ranks, five_tensors(),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   const std::size_t own = shards / static_cast<std::size_t>(ranks);
                   for (std::size_t tensor = 5; tensor-- > 0;) {
                     std::vector<std::vector<float>> sums;
                     for (std::size_t i = 0; i < own; ++i)
                       sums.push_back(leaf(static_cast<std::size_t>(rank) * own + i, tensor));
                     for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
                       for (std::size_t pair = 0; pair < sums.size() / 2; ++pair) {
                         std::vector<float> both(count);
                         for (std::size_t i = 0; i < count; ++i) both[i] = sums[2 * pair][i] + sums[2 * pair + 1][i];
                         sums[pair] = both;
                       }
                     }
                     Array values(TNT_FLOAT32, count);
                     std::memcpy(values.data(), sums[0].data(), count * sizeof(float));
                     trainer.compute(memory[tensor].get(), values, trainer.stream.get());
                     trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()},
                                           trainer.stream.get());
                   }
                   trainer.reducer.finish(trainer.stream.get());
                   trainer.device->synchronize(trainer.stream.get());
                   std::vector<float> found;
                   for (const DeviceBuffer& buffer : memory) {
                     const auto values = trainer.device->values<float>(buffer.get(), count);
                     found.insert(found.end(), values.begin(), values.end());
                   }
                   if (rank != 0) return;
                   if (expected.empty()) expected = found;
                   EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0) << ranks << " ranks";
                 },
                 {.rank_invariant = true}, {.backend = backend});
  };
  for (const int ranks : {1, 2, 4, 8}) run(ranks, Backend::nccl);
  run(4, Backend::hierarchical);
}

// A range for each bucket, which ends even if the device refuses a call inside.
TEST_F(FiveTensors, AProfilerSeesEachBucket) {
  run_trainers(1, five_tensors(), [&](Trainer& trainer, int rank) {
    trainer.gradients = buffers(trainer);  // a step fails
    const auto& memory = trainer.gradients;
    (void)trainer.device->take_ranges();
    step(trainer, rank, 1, 0, memory);
    const auto ranges = trainer.device->take_ranges();
    ASSERT_EQ(ranges.size(), 3 * 8U) << fmt::format("{}", fmt::join(ranges, ", "));
    EXPECT_NE(ranges[8].find("gradients bucket 1"), std::string::npos) << ranges[8];
    EXPECT_EQ(std::vector<std::string>(ranges.begin() + 9, ranges.begin() + 16),
              (std::vector<std::string>{"begin pack", "end", "begin reduce", "end", "begin unpack", "end", "end"}));
    trainer.device->synchronize(trainer.stream.get());
    trainer.device->fail_at(testing::Call::unpack);
    EXPECT_THROW(step(trainer, rank, 1, 1, memory), Error);
    const auto failed = trainer.device->take_ranges();
    EXPECT_EQ(std::count(failed.begin(), failed.end(), "end"), std::ssize(failed) / 2);
    EXPECT_FALSE(failed.empty());
  });
}

// Buckets that become due together take one event on the caller's stream.
TEST_F(FiveTensors, BucketsThatAreDueTogetherShareAnEvent) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    step(trainer, rank, 2, 0, memory);
    const auto before = trainer.device->enqueued_on(trainer.stream.get()).size();
    for (const std::size_t tensor : {0U, 1U, 2U, 3U, 4U}) {  // the first bucket has the last two
      trainer.compute(memory[tensor].get(), gradient(rank, tensor, 3), trainer.stream.get());
      trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, trainer.stream.get());
    }
    trainer.reducer.finish(trainer.stream.get());
    const auto enqueued = trainer.device->enqueued_on(trainer.stream.get());
    EXPECT_EQ(std::count(enqueued.begin() + static_cast<std::ptrdiff_t>(before), enqueued.end(), "record"), 1);
    for (std::size_t tensor = 0; tensor < 5; ++tensor) {
      trainer.expect(memory[tensor].get(), sum(2, tensor, 3), "due together", trainer.stream.get());
    }
  });
}

// A framework's allocator gives gradients other addresses in each step, and the same ones again.
TEST_F(FiveTensors, AddressesAreLookedUpOnce) {
  run_trainers(1, five_tensors(), [&](Trainer& trainer, int rank) {
    const std::vector<std::vector<DeviceBuffer>> memory = [&] {
      std::vector<std::vector<DeviceBuffer>> all;
      for (int i = 0; i < 3; ++i) all.push_back(buffers(trainer));
      return all;
    }();
    const int before = trainer.device->calls(testing::Call::pointer_attributes);
    for (unsigned i = 0; i < 9; ++i) step(trainer, rank, 1, i, memory[i % 3]);
    EXPECT_EQ(trainer.device->calls(testing::Call::pointer_attributes), before + 15);
    trainer.device->synchronize(trainer.stream.get());
  });
}

TEST_F(FiveTensors, MayBeReadyInOneCall) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    const std::vector<std::size_t> order{4, 2, 3, 0, 1};
    std::vector<TensorView> views;
    for (const std::size_t tensor : order) {
      trainer.compute(memory[tensor].get(), gradient(rank, tensor, 7), trainer.stream.get());
      views.push_back({.in = memory[tensor].get(), .out = memory[tensor].get()});
    }
    expect_refused([&] { trainer.reducer.ready_many(order, views, nullptr); }, "stream is NULL");
    trainer.reducer.ready_many(order, views, trainer.stream.get());
    trainer.reducer.finish(trainer.stream.get());
    for (std::size_t tensor = 0; tensor < 5; ++tensor) {
      trainer.expect(memory[tensor].get(), sum(2, tensor, 7), "a batch", trainer.stream.get());
    }
  });
}

// Replays are equivalent to steps, and steps outside the graph continue between them, with gradients at other addresses.
TEST_F(FiveTensors, AStepCanBeCaptured) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    const auto elsewhere = buffers(trainer);
    step(trainer, rank, 2, 0, memory);
    trainer.device->begin_capture(trainer.stream.get());
    step(trainer, rank, 2, 1, memory);
    const auto graph = trainer.device->end_capture(trainer.stream.get());
    for (int i = 0; i < 3; ++i) trainer.device->replay(graph, trainer.stream.get());
    step(trainer, rank, 2, 2, elsewhere);
    trainer.device->replay(graph, trainer.stream.get());
    step(trainer, rank, 2, 3, memory);
    trainer.device->begin_capture(trainer.stream.get());
    step(trainer, rank, 2, 4, elsewhere);
    const auto second = trainer.device->end_capture(trainer.stream.get());
    for (int i = 0; i < 2; ++i) {
      trainer.device->replay(second, trainer.stream.get());
      trainer.device->replay(graph, trainer.stream.get());
    }
    trainer.device->synchronize(trainer.stream.get());
  });
}

// A graph keeps the addresses of its capture in the parameters of its kernels, so there may be any number of graphs.
TEST_F(FiveTensors, AnyNumberOfSetsOfAddressesCanBeCaptured) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    constexpr std::size_t graphs = 7;
    std::vector<std::vector<DeviceBuffer>> memory;
    for (std::size_t i = 0; i < graphs; ++i) memory.push_back(buffers(trainer));
    const StreamHandle stream = trainer.stream.get();
    step(trainer, rank, 2, 0, memory[0]);
    std::vector<SimulatedDevice::Graph> captured;
    for (std::size_t i = 0; i < graphs; ++i) {
      trainer.device->begin_capture(stream);
      step(trainer, rank, 2, static_cast<unsigned>(i), memory[i]);
      captured.push_back(trainer.device->end_capture(stream));
    }
    for (int times = 0; times < 2; ++times) {
      for (const auto& graph : captured) trainer.device->replay(graph, stream);
    }
    step(trainer, rank, 2, 1, memory[3]);
    trainer.device->synchronize(stream);
  });
}

TEST_F(FiveTensors, AGraphThatExistsKeepsTheReducer) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    step(trainer, rank, 2, 0, memory);
    trainer.device->begin_capture(trainer.stream.get());
    step(trainer, rank, 2, 1, memory);
    auto graph = trainer.device->end_capture(trainer.stream.get());
    trainer.device->replay(graph, trainer.stream.get());
    trainer.device->synchronize(trainer.stream.get());
    expect_refused([&] { trainer.reducer.check_unused(); },
                   "CUDA graphs with 3 reductions of buckets of this reducer still exist");
    graph.reset();
    EXPECT_NO_THROW(trainer.reducer.check_unused());
  });
}

// NCCL's ring rounds each partial sum; the sum that is promised for any number of ranks is rounded once.
TEST_F(FiveTensors, AWireDtypeIsRoundedAsPromised) {
  constexpr int ranks = 5;
  constexpr double u = 0x1p-8;
  const auto value = [](int rank, std::size_t i) {
    return 1.0 + static_cast<double>((7 * i + 31 * static_cast<std::size_t>(rank)) % 128) / 128;
  };
  for (const bool promised : {false, true}) {
    run_trainers(ranks, five_tensors(TNT_BFLOAT16),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   const Array own = testing::repeated(TNT_FLOAT32, count, [&](std::size_t i) { return value(rank, i); });
                   for (std::size_t tensor = 5; tensor-- > 0;) {
                     trainer.compute(memory[tensor].get(), own, trainer.stream.get());
                     trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()},
                                           trainer.stream.get());
                   }
                   trainer.reducer.finish(trainer.stream.get());
                   trainer.device->synchronize(trainer.stream.get());
                   const auto found = trainer.device->values<float>(memory[0].get(), count);
                   double worst = 0;
                   for (std::size_t i = 0; i < count; ++i) {
                     double exact = 0;
                     for (int each = 0; each < ranks; ++each)
                       exact += value(each, i);  // all positive: also the sum of absolute values
                     worst = std::max(worst, std::abs(found[i] - exact) / (u * exact));
                   }
                   EXPECT_LE(worst, promised ? 1.0 : ranks);
                   if (!promised) {
                     EXPECT_GT(worst, 1.0);
                   }
                 },
                 {.rank_invariant = promised});
  }
}

// None of it is captured, and steps without a graph continue.
TEST_F(FiveTensors, WhatGoesThroughTheHostIsNotCaptured) {
  for (const Backend backend : {Backend::staged, Backend::hierarchical}) {
    run_trainers(4, five_tensors(),
                 [&](Trainer& trainer, int rank) {
                   const auto memory = buffers(trainer);
                   const StreamHandle stream = trainer.stream.get();
                   step(trainer, rank, 4, 0, memory);
                   trainer.device->begin_capture(stream);
                   for (std::size_t tensor = 5; tensor-- > 0;) {
                     void* const gradient = memory[tensor].get();
                     expect_refused([&] { trainer.reducer.ready(tensor, {.in = gradient, .out = gradient}, stream); },
                                    "cannot be captured in a CUDA graph: use NCCL, or no graph", TNT_UNSUPPORTED);
                   }
                   (void)trainer.device->end_capture(stream);
                   step(trainer, rank, 4, 1, memory);
                 },
                 {}, {.backend = backend});
  }
}

// Each is refused by name, and the step continues as if it had not been tried.
TEST_F(FiveTensors, MisuseChangesNothing) {
  run_trainers(2, five_tensors(), [&](Trainer& trainer, int rank) {
    const auto memory = buffers(trainer);
    SimulatedDevice second(7);
    const Stream foreign_stream(second);
    const DeviceBuffer foreign(second, count * sizeof(float), foreign_stream.get());
    const PinnedBuffer pinned(*trainer.device, count * sizeof(float));
    std::vector<float> host(count);
    const StreamHandle stream = trainer.stream.get();
    DeviceReducer& reducer = trainer.reducer;
    void* const good = memory[4].get();
    const auto misuse = [&] {
      expect_refused([&] { reducer.ready(5, {.in = good, .out = good}, stream); }, "tensor 5 is not in the plan of 5");
      expect_refused([&] { reducer.ready(0, {.in = nullptr, .out = good}, stream); }, "the gradient of 'a' is NULL");
      expect_refused([&] { reducer.ready(0, {.in = host.data(), .out = good}, stream); }, "the gradient of 'a' is host memory");
      expect_refused([&] { reducer.ready(0, {.in = good, .out = host.data()}, stream); }, "the result of 'a' is host memory");
      expect_refused([&] { reducer.ready(0, {.in = pinned.get(), .out = good}, stream); }, "host memory");
      expect_refused([&] { reducer.ready(0, {.in = foreign.get(), .out = good}, stream); }, "lies on device 7");
      expect_refused([&] { reducer.ready(0, {.in = good, .out = good}, nullptr); }, "stream is NULL");
      expect_refused([&] { reducer.ready(0, {.in = good, .out = good}, foreign_stream.get()); }, "the stream is of device 7");
      expect_refused([&] { reducer.finish(stream); }, "was not marked ready");
      expect_refused([&] { reducer.finish(nullptr); }, "stream is NULL");
      expect_refused([&] { reducer.wait_bucket(3, stream); }, "bucket 3 is not in the plan of 3 buckets");
      expect_refused([&] { (void)reducer.gradient_buffer(0); }, "set gradients_in_buckets when the reducer is created");
      expect_refused([&] { (void)reducer.gradient_buffer(9); }, "tensor 9");
    };
    misuse();
    expect_refused([&] { reducer.wait_bucket(0, stream); }, "of which no gradient was marked ready");
    trainer.compute(good, gradient(rank, 4), stream);
    reducer.ready(4, {.in = good, .out = good}, stream);
    expect_refused([&] { reducer.ready(4, {.in = good, .out = good}, stream); }, "'e' was marked ready twice");
    expect_refused([&] { reducer.set_hook({}); }, "a hook cannot be set while gradients bucket 0: ");
    misuse();
    for (const std::size_t tensor : {0U, 1U, 2U, 3U}) {
      trainer.compute(memory[tensor].get(), gradient(rank, tensor), stream);
      reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, stream);
      if (tensor == 0) expect_refused([&] { reducer.wait_bucket(2, stream); }, "before the gradient of 'd'");
    }
    reducer.wait_bucket(1, stream);
    reducer.finish(stream);
    trainer.expect(good, sum(2, 4), "the good one", stream);
    for (unsigned i = 1; i < 3; ++i) step(trainer, rank, 2, i, memory);
  });
}

TEST_F(FiveTensors, AGradientThatIsCastHasNoPlaceInTheBucket) {
  run_trainers(1, five_tensors(TNT_BFLOAT16), [&](Trainer& trainer, int) {
    expect_refused([&] { (void)trainer.reducer.gradient_buffer(0); }, "'a' is float32 but is reduced as bfloat16");
  });
}

// A hook enqueues work on the bucket: here it reads what is sent, and doubles it on rank 1, also where a gradient lies in it.
TEST_F(FiveTensors, AHookChangesWhatIsSent) {
  for (const bool in_bucket : {false, true}) {
    const auto train = [&](Trainer& trainer, int rank) {
      const auto memory = buffers(trainer);
      const StreamHandle stream = trainer.stream.get();
      std::vector<std::size_t> seen;
      trainer.reducer.set_hook([&](const PackedBucket& bucket) -> std::optional<std::string> {
        const auto& tensors = trainer.reducer.plan().buckets()[bucket.bucket].tensors;
        EXPECT_EQ(bucket.offsets.size(), tensors.size());
        for (std::size_t position = 0; position < tensors.size(); ++position) {
          auto* const data = static_cast<float*>(bucket.data) + bucket.offsets[position];
          EXPECT_LE(bucket.offsets[position] + count, bucket.count);
          trainer.expect(data, gradient(rank, tensors[position]), "what is sent", bucket.stream);
          const Array twice =
              testing::repeated(TNT_FLOAT32, count, [&](std::size_t i) { return 2 * gradient(1, tensors[position]).get(i); });
          if (rank == 1) trainer.compute(data, twice, bucket.stream);
        }
        seen.push_back(bucket.bucket);
        return std::nullopt;
      });
      for (int i = 0; i < 2; ++i) {
        for (std::size_t tensor = 5; tensor-- > 0;) {
          void* const place = in_bucket ? trainer.reducer.gradient_buffer(tensor) : memory[tensor].get();
          trainer.compute(place, gradient(rank, tensor), stream);
          trainer.reducer.ready(tensor, {.in = place, .out = place}, stream);
        }
        trainer.reducer.finish(stream);
        for (std::size_t tensor = 0; tensor < 5; ++tensor) {
          const Array expected = testing::repeated(
              TNT_FLOAT32, count, [&](std::size_t i) { return sum(2, tensor).get(i) + gradient(1, tensor).get(i); });
          trainer.expect(in_bucket ? trainer.reducer.gradient_buffer(tensor) : memory[tensor].get(), expected, "the sum",
                         stream);
        }
      }
      EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2}));
      trainer.device->synchronize(stream);
    };
    run_trainers(2, five_tensors(), train, {.gradients_in_buckets = in_bucket});
  }
}

TEST_F(FiveTensors, AHookThatFailsEndsTheJobWithItsReason) {
  const std::string message = testing::common_error(2, TNT_ABORTED, [&](Communicator& host) {
    Trainer trainer(host, five_tensors(), {});
    trainer.gradients = buffers(trainer);
    if (host.rank() == 1) {
      trainer.reducer.set_hook([](const PackedBucket& bucket) -> std::optional<std::string> {
        if (bucket.bucket == 1) throw std::runtime_error("no more of this");
        return std::nullopt;
      });
    }
    for (std::size_t tensor = 5; tensor-- > 0;) {
      void* const place = trainer.gradients[tensor].get();
      trainer.compute(place, gradient(host.rank(), tensor), trainer.stream.get());
      trainer.reducer.ready(tensor, {.in = place, .out = place}, trainer.stream.get());
    }
    while (true) trainer.reducer.check();
  });
  EXPECT_EQ(message.find("rank 1: gradients bucket 1: "), 0U) << message;
  EXPECT_NE(message.find(": the bucket hook failed: no more of this"), std::string::npos) << message;
}

// A device or an allocation that fails on one rank ends the job on all, with one message that names rank and bucket.
TEST_F(FiveTensors, AFailureIsEveryRanks) {
  Trainer::timeout = 5.0;
  for (const auto failure : {testing::Failure::of_device, testing::Failure::of_host_memory}) {
    const std::string message = testing::common_error(3, TNT_SYSTEM, [&](Communicator& host) {
      Trainer trainer(host, five_tensors(), {});
      trainer.gradients = buffers(trainer);
      const auto& memory = trainer.gradients;
      if (host.rank() == 1) trainer.device->fail_at(testing::Call::pack, 2, failure);
      for (const DeviceBuffer& buffer : memory)
        trainer.device->fill_zero(buffer.get(), count * sizeof(float), trainer.stream.get());
      const auto run = [&] {
        while (true) {
          for (std::size_t tensor = 5; tensor-- > 0;) {
            trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, trainer.stream.get());
          }
          trainer.reducer.finish(trainer.stream.get());
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      };
      EXPECT_THROW(run(), Error);
      run();
    });
    EXPECT_NE(message.find("rank 1: gradients bucket 1"), std::string::npos) << message;
    const auto* const reason = failure == testing::Failure::of_device ? "injected by the test" : "out of memory";
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }
  Trainer::timeout = testing::default_timeout;
}

// Without the third rank: the message names it, and the bucket.
TEST_F(FiveTensors, AMissingRankIsNamed) {
  Trainer::timeout = 0.5;
  const std::string message = testing::common_error(3, TNT_TIMEOUT, [&](Communicator& host) {
    Trainer trainer(host, five_tensors(), {});
    trainer.gradients = buffers(trainer);
    const auto& memory = trainer.gradients;
    if (host.rank() < 2) {
      for (const std::size_t tensor : {4U, 3U}) {
        trainer.compute(memory[tensor].get(), gradient(host.rank(), tensor), trainer.stream.get());
        trainer.reducer.ready(tensor, {.in = memory[tensor].get(), .out = memory[tensor].get()}, trainer.stream.get());
      }
    }
    while (true) {
      trainer.comm->throw_if_aborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Trainer::timeout = testing::default_timeout;
  EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  EXPECT_NE(message.find("bucket 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
