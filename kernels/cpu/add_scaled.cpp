#include "kernels/cpu/add_scaled.hpp"

#include <algorithm>
#include <array>

#include "kernels/cpu/pack.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

using Block = std::array<std::byte, 4096>;

// factor * from, in block if it is not from itself.
const void* scaled(Block& block, const void* from, std::size_t begin, std::size_t count, tnt_dtype_t dtype, double factor,
                   Isa isa) {
  const auto* part = from == nullptr ? nullptr : static_cast<const std::byte*>(from) + begin * dtype_size(dtype);
  if (factor == 1.0) return part;
  scale(block.data(), dtype, part, dtype, count, factor, isa);
  return block.data();
}

}  // namespace

void add_scaled(void* out, const void* a, double scale_a, const void* b, double scale_b, std::size_t count, tnt_dtype_t dtype,
                Isa isa) {
  if (scale_a == 1.0 && scale_b == 1.0) return reduce(out, std::array{a, b}, count, dtype, TNT_SUM, isa);
  alignas(64) Block product_a;  // NOLINT(*-member-init): written before it is read
  alignas(64) Block product_b;  // NOLINT(*-member-init): as above
  const std::size_t per_block = product_a.size() / dtype_size(dtype);
  for (std::size_t at = 0; at < count; at += per_block) {
    const std::size_t part = std::min(per_block, count - at);
    const std::array<const void*, 2> terms{scaled(product_a, a, at, part, dtype, scale_a, isa),
                                           scaled(product_b, b, at, part, dtype, scale_b, isa)};
    reduce(static_cast<std::byte*>(out) + at * dtype_size(dtype), terms, part, dtype, TNT_SUM, isa);
  }
}

}  // namespace tnt
