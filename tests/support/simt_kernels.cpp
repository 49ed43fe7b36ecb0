// The GPU kernels compiled for the CPU (tests/simt), for a simulated device.
#include <gtest/gtest.h>

#include <exception>

#include "support/simulated_kernels.hpp"

namespace tnt::testing {
namespace {

// They run in a thread of the device, where nobody catches exceptions.
template <typename Launch>
void launched(const Launch& launch) {
  try {
    launch();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

}  // namespace

const Kernels& simt_kernels() {
  static constexpr Kernels kernels{
      .pack = [](const auto& launch) { launched([&] { gpu::pack(launch, nullptr); }); },
      .unpack = [](const auto& launch) { launched([&] { gpu::unpack(launch, nullptr); }); },
      .accumulate = [](const auto& launch) { launched([&] { gpu::accumulate(launch, nullptr); }); },
      .sum_statistics = [](const auto* partials, auto n,
                           auto* total) { launched([&] { gpu::sum_statistics(partials, n, total, nullptr); }); },
      .clip_factor = [](const auto* statistics, auto n, double limit,
                        double* factor) { launched([&] { gpu::clip_factor(statistics, n, limit, factor, nullptr); }); },
      .reduce = [](void* out, const auto* sources, int n, auto count,
                   auto dtype) { launched([&] { gpu::reduce(out, sources, n, count, dtype, nullptr); }); }};
  return kernels;
}

}  // namespace tnt::testing
