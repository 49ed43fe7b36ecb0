// A job on GPUs whose steps are replayed from a CUDA graph, and one that a rank leaves.
#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "benchmarks/gpu/cases.hpp"
#include "benchmarks/gpu/measure.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

constexpr std::array<std::size_t, 3> counts{7, 300'000, 1'000};
constexpr std::array<const char*, 3> names{"first", "second", "third"};
constexpr double patience_us = 30e6;

// Three tensors in buckets of their own. Each rank contributes rank + 1, so that the sums are known.
class Steps {
 public:
  explicit Steps(const Trainer& trainer) : trainer_(trainer) {
    std::vector<tnt_tensor_t> tensors;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      tensors.push_back({names[i], counts[i], TNT_FLOAT32});
      memory_.emplace_back(counts[i] * sizeof(float));
    }
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.device = trainer.device;
    options.fusion_threshold = 0;
    TNT_CHECK(tnt_reducer_create(trainer.comm, tensors.data(), tensors.size(), &options, &reducer_));
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() { tnt_reducer_destroy(reducer_); }

  void enqueue() const {
    for (std::size_t tensor = counts.size(); tensor-- > 0;) {
      std::byte* const gradient = memory_[tensor].get();
      TNT_CHECK(tnt_reducer_ready(reducer_, tensor, gradient, gradient, 1.0, trainer_.stream));
    }
    TNT_CHECK(tnt_reducer_finish(reducer_, trainer_.stream));
  }
  void fill() const {
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
      const std::vector<float> values(counts[tensor], static_cast<float>(trainer_.rank + 1));
      TNT_CUDA(cudaMemcpy(memory_[tensor].get(), values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    }
    TNT_CUDA(cudaStreamSynchronize(nullptr));  // the copy may still be on its way from CUDA's own pinned memory
  }
  void check(const char* what) const {
    TNT_CUDA(cudaStreamSynchronize(trainer_.stream));
    TNT_CHECK(tnt_reducer_check(reducer_));
    const auto sum = static_cast<float>(trainer_.ranks * (trainer_.ranks + 1) / 2);
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
      std::vector<float> values(counts[tensor]);
      TNT_CUDA(cudaMemcpy(values.data(), memory_[tensor].get(), values.size() * sizeof(float), cudaMemcpyDeviceToHost));
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] == sum) continue;
        throw Failure(fmt::format("{}: element {} of tensor {} is {} and not {}", what, i, tensor, values[i], sum));
      }
    }
  }
  // The error that the rank is told, "" before.
  [[nodiscard]] std::string error() const {
    return tnt_reducer_check(reducer_) == TNT_SUCCESS ? "" : std::string(tnt_last_error());
  }

 private:
  const Trainer& trainer_;
  std::vector<Memory> memory_;
  tnt_reducer_t reducer_ = nullptr;
};

class CapturedStep {
 public:
  CapturedStep(const Steps& steps, cudaStream_t stream) : stream_(stream) {
    TNT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    steps.enqueue();
    TNT_CUDA(cudaStreamEndCapture(stream, &graph_));
    TNT_CUDA(cudaGraphInstantiateWithFlags(&executable_, graph_, 0));
  }
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;
  ~CapturedStep() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void replay() const { TNT_CUDA(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

void run_capture_case(const Trainer& trainer) {
  const Steps steps(trainer);
  steps.fill();
  steps.enqueue();
  steps.check("before the capture");
  constexpr int replays = 10;
  std::vector<double> times;
  {
    const CapturedStep captured(steps, trainer.stream);
    const CudaEvent begin;
    const CudaEvent end;
    for (int i = 0; i < replays; ++i) {
      steps.fill();
      TNT_CHECK(tnt_barrier(trainer.comm, nullptr, nullptr));
      begin.record(trainer.stream);
      captured.replay();
      end.record(trainer.stream);
      steps.check("a replay");
      times.push_back(end.microseconds_since(begin));
    }
  }
  steps.fill();
  steps.enqueue();
  steps.check("after the graph");
  if (trainer.rank != 0) return;
  print_line({{"case", fmt::format("capture/{} ranks", trainer.ranks)}, {"replays", replays}, {"us", median_of(times)}});
}

// The last rank leaves without a word in its second step. Does not return: the job is over.
void run_abort_case(const Trainer& trainer) {
  const Steps steps(trainer);
  steps.fill();
  steps.enqueue();
  steps.check("before the abort");
  TNT_CHECK(tnt_barrier(trainer.comm, nullptr, nullptr));  // all have their sums, which are in each other's memory
  if (trainer.rank + 1 == trainer.ranks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others leave the barrier
    std::_Exit(0);
  }
  const double begin = now_us();
  std::string error;
  try {
    steps.enqueue();
  } catch (const Failure& failure) {
    error = failure.what();
  }
  TNT_CUDA(cudaStreamSynchronize(trainer.stream));  // the abort ends the work
  while (error.empty() && now_us() - begin < patience_us) error = steps.error();
  const bool named = error.find(fmt::format("rank {}", trainer.ranks - 1)) != std::string::npos;
  if (!named) throw Failure(fmt::format("rank {} has left, and rank {} is told '{}'", trainer.ranks - 1, trainer.rank, error));
  if (trainer.rank == 0) {
    print_line(
        {{"case", fmt::format("abort/{} ranks", trainer.ranks)}, {"seconds", (now_us() - begin) * 1e-6}, {"message", error}});
  }
  std::fflush(nullptr);
  std::_Exit(0);
}

}  // namespace tnt::bench
