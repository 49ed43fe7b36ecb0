#include "support/simulated_kernels.hpp"

#include <algorithm>
#include <span>

#include "common/dtype.hpp"
#include "support/host_kernels.hpp"
#include "support/simulated_memory.hpp"

namespace tnt::testing {
namespace {

bool readable(const Access& access) {
  const auto block = SimulatedMemory::of_process().block_of(access.memory);
  return access.bytes == 0 || (block && !block->released && access.end() <= block->end());
}

// Adjacent tiles are merged into one access.
class Ranges {
 public:
  explicit Ranges(bool write) : write_(write) {}
  void add(const void* memory, std::size_t offset, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(memory) + offset;
    if (!ranges_.empty() && ranges_.back().end() == begin) {
      ranges_.back().bytes += bytes;
    } else {
      ranges_.push_back({begin, bytes, write_});
    }
  }
  void append_to(std::vector<Access>& all) const { all.insert(all.end(), ranges_.begin(), ranges_.end()); }

 private:
  bool write_;
  std::vector<Access> ranges_;
};

struct BucketRanges {
  Ranges tensors_read{false};
  Ranges tensors_written{true};
  Ranges bucket_read{false};
  Ranges bucket_written{true};

  void add(const gpu::Tile& tile, const gpu::TensorArgument& tensor, const gpu::BucketLaunch& launch,
           gpu::Direction direction) {
    const std::size_t size = dtype_size(static_cast<tnt_dtype_t>(tile.dtype));
    const std::size_t wire = dtype_size(launch.wire);
    if (direction == gpu::Direction::pack) {
      if (tensor.in != nullptr && tensor.scale != 0.0) tensors_read.add(tensor.in, tile.first * size, tile.count * size);
      const std::size_t stays = tensor.in == nullptr && tensor.scale != 0.0 ? tile.count : 0;
      bucket_written.add(launch.bucket, (tile.slot + stays) * wire, (tile.count + tile.padding - stays) * wire);
      return;
    }
    if (tensor.out != nullptr) tensors_written.add(tensor.out, tile.first * size, tile.count * size);
    if (tensor.out != nullptr || launch.statistics != nullptr) {
      bucket_read.add(launch.bucket, tile.slot * wire, tile.count * wire);
    }
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static constexpr Kernels kernels{.pack = host::pack,
                                   .unpack = host::unpack,
                                   .accumulate = host::accumulate,
                                   .sum_statistics = host::sum_statistics,
                                   .clip_factor = host::clip_factor,
                                   .reduce = host::reduce};
  return kernels;
}

std::vector<Access> bucket_accesses(const gpu::BucketLaunch& launch, gpu::Direction direction) {
  std::vector<Access> accesses;
  accesses.push_back({launch.tiles, launch.n_tiles * sizeof(gpu::Tile), false});
  if (!readable(accesses.back())) return accesses;
  const std::span tiles(launch.tiles, launch.n_tiles);
  if (launch.statistics != nullptr) {
    accesses.push_back({launch.statistics, launch.n_tiles * sizeof(gpu::Statistics), true});
  }
  if (launch.factor != nullptr) accesses.push_back({launch.factor, sizeof(double), false});
  BucketRanges ranges;
  for (const gpu::Tile& tile : tiles) ranges.add(tile, launch.tensors[tile.tensor], launch, direction);
  for (const Ranges* some : {&ranges.tensors_read, &ranges.tensors_written, &ranges.bucket_read, &ranges.bucket_written}) {
    some->append_to(accesses);
  }
  return accesses;
}

std::vector<Access> accumulate_accesses(const gpu::BucketLaunch& launch) {
  std::vector<Access> accesses;
  accesses.push_back({launch.tiles, launch.n_tiles * sizeof(gpu::Tile), false});
  if (!readable(accesses.back())) return accesses;
  Ranges sums(true);
  Ranges terms(false);
  for (const gpu::Tile& tile : std::span(launch.tiles, launch.n_tiles)) {
    void* const out = launch.tensors[tile.tensor].out;
    if (out == nullptr) continue;
    sums.add(out, tile.first * sizeof(float), tile.count * sizeof(float));
    terms.add(launch.bucket, tile.slot * dtype_size(launch.wire), tile.count * dtype_size(launch.wire));
  }
  sums.append_to(accesses);
  terms.append_to(accesses);
  return accesses;
}

}  // namespace tnt::testing
