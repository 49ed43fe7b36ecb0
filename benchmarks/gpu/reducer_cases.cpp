#include <fmt/core.h>

#include <algorithm>

#include "benchmarks/gpu/cases.hpp"
#include "benchmarks/gpu/kernels.hpp"
#include "benchmarks/gpu/measure.hpp"

namespace tnt::bench {
namespace {

constexpr int warm_steps = 3;
constexpr int steps = 20;

// The median duration of a step on the caller's stream. All ranks start together.
double step_us(const Trainer& trainer, const std::function<void()>& step) {
  const CudaEvent begin;
  const CudaEvent end;
  std::vector<double> times;
  for (int i = -warm_steps; i < steps; ++i) {
    TNT_CHECK(tnt_barrier(trainer.comm, nullptr, nullptr));
    begin.record(trainer.stream);
    step();
    end.record(trainer.stream);
    TNT_CUDA(cudaStreamSynchronize(trainer.stream));
    if (i >= 0) times.push_back(end.microseconds_since(begin));
  }
  return median_of(times);
}

}  // namespace

void run_reducer_case(const Trainer& trainer, const Model& model) {
  const Gradients gradients(trainer, model);
  const std::vector<bool> last = gradients.last_of_buckets();
  std::vector<double> ready;
  std::vector<double> bucket;
  std::vector<double> finish;
  std::vector<double> host;
  int number = -warm_steps;
  const double device = step_us(trainer, [&] {
    const bool counts = number++ >= 0;
    const double begin = now_us();
    for (std::size_t tensor = gradients.size(); tensor-- > 0;) {
      const double before = now_us();
      gradients.ready(tensor);
      if (counts) (last[tensor] ? bucket : ready).push_back(now_us() - before);
    }
    const double before = now_us();
    gradients.finish();
    if (!counts) return;
    finish.push_back(now_us() - before);
    host.push_back(now_us() - begin);
  });
  if (trainer.rank != 0) return;
  print_line({{"case", fmt::format("reducer/{}/{} ranks", model.name, trainer.ranks)},
              {"bytes", gradients.bytes()},
              {"tensors", gradients.size()},
              {"buckets", gradients.buckets()},
              {"us", device},
              {"ready_host_us", median_of(ready)},
              {"ready_host_us_p95", percentile_of(ready, 95)},
              {"bucket_host_us", median_of(bucket)},
              {"bucket_host_us_p95", percentile_of(bucket, 95)},
              {"finish_host_us", median_of(finish)},
              {"step_host_us", median_of(host)}});
}

void run_overlap_case(const Trainer& trainer, const Model& model, double backward_us) {
  const Gradients gradients(trainer, model);
  const auto all = static_cast<double>(gradients.bytes());
  const auto backward = [&](std::size_t tensor) {
    compute(backward_us * static_cast<double>(gradients.bytes_of(tensor)) / all, trainer.stream);
  };
  const double computing = step_us(trainer, [&] {
    for (std::size_t tensor = gradients.size(); tensor-- > 0;) backward(tensor);
  });
  const double communicating = step_us(trainer, [&] {
    for (std::size_t tensor = gradients.size(); tensor-- > 0;) gradients.ready(tensor);
    gradients.finish();
  });
  const double both = step_us(trainer, [&] {
    for (std::size_t tensor = gradients.size(); tensor-- > 0;) {
      backward(tensor);
      gradients.ready(tensor);
    }
    gradients.finish();
  });
  if (trainer.rank != 0) return;
  const double exposed = std::max(0.0, both - computing);
  print_line({{"case", fmt::format("overlap/{}/{} ranks", model.name, trainer.ranks)},
              {"bytes", gradients.bytes()},
              {"buckets", gradients.buckets()},
              {"compute_us", computing},
              {"communication_us", communicating},
              {"us", both},
              {"exposed_us", exposed},
              {"hidden_percent", 100.0 * std::clamp(1.0 - exposed / communicating, 0.0, 1.0)}});
}

}  // namespace tnt::bench
