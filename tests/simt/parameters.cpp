// What tests let the simulated device do.
#include "simt/parameters.hpp"

namespace tnt {
namespace {

thread_local std::uint32_t limit = gpu::many_tensors;
thread_local bool bulk_copies = true;

}  // namespace

std::uint32_t gpu::max_tensors_per_launch() { return limit; }
bool gpu::has_bulk_copies() { return bulk_copies; }

void testing::set_max_tensors_per_launch(std::uint32_t tensors) { limit = tensors; }
void testing::set_bulk_copies(bool possible) { bulk_copies = possible; }

}  // namespace tnt
