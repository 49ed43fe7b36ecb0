// The functions of tests/simt/kernel_runs.hpp on a GPU. The sizes of the arrays follow from the launch.
#include "simt/kernel_runs.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "common/dtype.hpp"
#include "gpu/device_copies.hpp"

namespace tnt::testing {
namespace {

std::span<const gpu::Tile> tiles_of(const gpu::BucketLaunch& launch) { return {launch.tiles, launch.n_tiles}; }

std::size_t bucket_bytes(const gpu::BucketLaunch& launch) {
  std::size_t end = 0;
  for (const gpu::Tile& tile : tiles_of(launch)) end = std::max(end, std::size_t{tile.slot} + tile.count + tile.padding);
  return end * dtype_size(launch.wire);
}

// For each tensor that has tiles; the others are not accessed.
// element: of a tensor; 0: that of its type.
std::vector<std::size_t> tensor_bytes(const gpu::BucketLaunch& launch, std::size_t element) {
  std::vector<std::size_t> bytes;
  for (const gpu::Tile& tile : tiles_of(launch)) {
    if (bytes.size() <= tile.tensor) bytes.resize(tile.tensor + std::size_t{1});
    const std::size_t end =
        (tile.first + tile.count) * (element > 0 ? element : dtype_size(static_cast<tnt_dtype_t>(tile.dtype)));
    bytes[tile.tensor] = std::max(bytes[tile.tensor], end);
  }
  return bytes;
}

enum class Side { in, out };

// The launch with its arrays on the GPU, for one side of its tensors.
gpu::BucketLaunch on_device(const gpu::BucketLaunch& launch, std::vector<gpu::TensorArgument>& arguments, DeviceCopies& copies,
                            Side side, std::size_t element = 0) {
  const std::vector<std::size_t> bytes = tensor_bytes(launch, element);
  arguments.assign(launch.tensors, launch.tensors + launch.n_tensors);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    gpu::TensorArgument& argument = arguments[i];
    const bool is_read = argument.in != nullptr && argument.scale != 0.0;  // otherwise even an invalid address is allowed
    if (side == Side::in && is_read) argument.in = copies.of(argument.in, bytes[i]);
    if (side == Side::out && argument.out != nullptr) argument.out = copies.of(argument.out, bytes[i]);
  }
  gpu::BucketLaunch moved = launch;
  moved.tiles = copies.of(launch.tiles, launch.n_tiles * sizeof(gpu::Tile));
  moved.tensors = arguments.data();
  moved.bucket = copies.of(launch.bucket, bucket_bytes(launch));
  if (launch.statistics != nullptr) {
    moved.statistics = copies.of(launch.statistics, launch.n_tiles * sizeof(gpu::Statistics));
  }
  if (launch.factor != nullptr) moved.factor = copies.of(launch.factor, sizeof(double));
  return moved;
}

}  // namespace

void run_pack(const gpu::BucketLaunch& launch) {
  DeviceCopies copies;
  std::vector<gpu::TensorArgument> arguments;
  gpu::pack(on_device(launch, arguments, copies, Side::in), copies.stream());
  copies.check_guards();
  copies.bring_back(launch.bucket);
  copies.bring_back(launch.statistics);
}

void run_unpack(const gpu::BucketLaunch& launch) {
  DeviceCopies copies;
  std::vector<gpu::TensorArgument> arguments;
  gpu::unpack(on_device(launch, arguments, copies, Side::out), copies.stream());
  copies.check_guards();
  for (std::size_t i = 0; i < arguments.size(); ++i) copies.bring_back(launch.tensors[i].out);
  copies.bring_back(launch.bucket);
  copies.bring_back(launch.statistics);
}

void run_accumulate(const gpu::BucketLaunch& launch) {
  DeviceCopies copies;
  std::vector<gpu::TensorArgument> arguments;
  gpu::accumulate(on_device(launch, arguments, copies, Side::out, sizeof(float)), copies.stream());
  copies.check_guards();
  for (std::size_t i = 0; i < arguments.size(); ++i) copies.bring_back(launch.tensors[i].out);
}

double run_clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit) {
  DeviceCopies copies;
  double factor = -1.0;
  gpu::clip_factor(copies.of(statistics, n * sizeof(gpu::Statistics)), n, limit, copies.of(&factor, sizeof(factor)),
                   copies.stream());
  copies.check_guards();
  copies.bring_back(&factor);
  return factor;
}

void run_sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total) {
  DeviceCopies copies;
  gpu::sum_statistics(copies.of(partials, n * sizeof(gpu::Statistics)), n, copies.of(total, sizeof(gpu::Statistics)),
                      copies.stream());
  copies.check_guards();
  copies.bring_back(total);
}

void run_reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype) {
  DeviceCopies copies;
  const std::size_t bytes = count * dtype_size(dtype);
  std::vector<const void*> moved;
  for (int i = 0; i < n; ++i) moved.push_back(copies.of(sources[i], bytes));
  gpu::reduce(copies.of(out, bytes), moved.data(), n, count, dtype, copies.stream());
  copies.check_guards();
  copies.bring_back(out);
}

void set_schedule(Schedule /*schedule*/, unsigned /*seed*/) {}

void set_warp_size(unsigned /*threads*/) {}

}  // namespace tnt::testing
