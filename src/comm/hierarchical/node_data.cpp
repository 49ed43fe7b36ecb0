#include "comm/hierarchical/node_data.hpp"

#include "kernels/cpu/reduce.hpp"

namespace tnt {

void pack_as(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, std::byte* to,
             StagingPool& staging) {
  if (fused.dtype() == dtype) return fused.pack(first, count, to);
  const StagingBuffer packed = staging.acquire(count * dtype_size(fused.dtype()));
  fused.pack(first, count, packed.get());
  scale(to, dtype, packed.get(), fused.dtype(), count, 1.0);
}

void unpack_from(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, const std::byte* from,
                 StagingPool& staging) {
  if (fused.dtype() == dtype) return fused.unpack(first, count, from);
  const StagingBuffer packed = staging.acquire(count * dtype_size(fused.dtype()));
  scale(packed.get(), fused.dtype(), from, dtype, count, 1.0);
  fused.unpack(first, count, packed.get());
}

void wait_quietly(const std::shared_ptr<Work>& work) noexcept {
  if (!work) return;
  try {
    (void)work->wait(-1);
  } catch (const Error&) {  // the first error has been reported already
  }
}

}  // namespace tnt
