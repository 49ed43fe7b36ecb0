#include <fmt/core.h>

#include <cmath>

#include "benchmarks/gpu/cases.hpp"
#include "benchmarks/gpu/measure.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

// Every rank contributes rank + 1, so that the sum is known.
void check_sum(const Trainer& trainer, float* in, float* out, std::size_t count) {
  std::vector<float> values(count, static_cast<float>(trainer.rank + 1));
  TNT_CUDA(cudaMemcpyAsync(in, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, trainer.stream));
  TNT_CHECK(tnt_all_reduce(trainer.comm, in, out, count, TNT_FLOAT32, TNT_SUM, trainer.stream, nullptr));
  TNT_CUDA(cudaMemcpyAsync(values.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost, trainer.stream));
  TNT_CUDA(cudaStreamSynchronize(trainer.stream));
  const auto sum = static_cast<float>(trainer.ranks * (trainer.ranks + 1) / 2);
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == sum) continue;
    throw Failure(fmt::format("all_reduce of {} floats: element {} is {} and not {}", count, i, values[i], sum));
  }
}

}  // namespace

void run_all_reduce_cases(const Trainer& trainer, std::size_t max_bytes, int repeats) {
  const bool few = repeats < 5;
  const int warm = few ? 1 : 5;
  const Memory in(max_bytes);
  const Memory out(max_bytes);
  auto* const from = reinterpret_cast<float*>(in.get());
  auto* const to = reinterpret_cast<float*>(out.get());
  const CudaEvent begin;
  const CudaEvent end;
  for (std::size_t bytes = sizeof(float); bytes <= max_bytes; bytes *= 8) {
    const std::size_t count = bytes / sizeof(float);
    check_sum(trainer, from, to, count);
    const int many = bytes <= (std::size_t{1} << 20) ? 20 : 5;
    const int calls = few ? 2 : many;
    std::vector<double> times;
    std::vector<double> host;
    for (int i = -warm; i < repeats; ++i) {
      TNT_CHECK(tnt_barrier(trainer.comm, nullptr, nullptr));
      begin.record(trainer.stream);
      const double before = now_us();
      for (int call = 0; call < calls; ++call) {
        TNT_CHECK(tnt_all_reduce(trainer.comm, from, to, count, TNT_FLOAT32, TNT_SUM, trainer.stream, nullptr));
      }
      const double enqueued = now_us() - before;
      end.record(trainer.stream);
      TNT_CUDA(cudaStreamSynchronize(trainer.stream));
      if (i < 0) continue;
      times.push_back(end.microseconds_since(begin) / calls);
      host.push_back(enqueued / calls);
    }
    if (trainer.rank != 0) continue;
    const double us = median_of(times);
    const double rate = static_cast<double>(bytes) / us * 1e-3;
    print_line({{"case", fmt::format("all_reduce/{}/{} ranks", bytes, trainer.ranks)},
                {"bytes", bytes},
                {"us", us},
                {"gb_per_s", rate},
                {"bus_gb_per_s", rate * 2 * (trainer.ranks - 1) / trainer.ranks},
                {"host_us", median_of(host)}});
  }
}

}  // namespace tnt::bench
