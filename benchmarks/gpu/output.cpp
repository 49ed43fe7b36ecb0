#include "benchmarks/gpu/output.hpp"

#include <fmt/core.h>

#include "benchmarks/gpu/memory.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

void print_line(const nlohmann::ordered_json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

nlohmann::ordered_json describe_device(int device) {
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  TNT_CUDA(cudaGetDeviceProperties(&properties, device));
  TNT_CUDA(cudaDriverGetVersion(&driver));
  TNT_CUDA(cudaRuntimeGetVersion(&runtime));
  return {{"case", "machine"},
          {"device", properties.name},
          {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
          {"multiprocessors", properties.multiProcessorCount},
          {"l2_bytes", properties.l2CacheSize},
          {"memory_bytes", properties.totalGlobalMem},
          {"driver_cuda", version_text(driver)},
          {"runtime_cuda", version_text(runtime)},
          {"tarantella", tnt_version()}};
}

void check_call(tnt_status_t status, const char* call) {
  if (status != TNT_SUCCESS) throw Failure(fmt::format("{}: {}", call, tnt_last_error()));
}

}  // namespace tnt::bench
