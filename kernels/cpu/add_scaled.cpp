
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/cpu/pack.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cpu/register_sums.hpp"

namespace tnt {
namespace {

constexpr std::size_t product_bytes = 4096;

template <typename T, std::size_t... i>
[[gnu::always_inline]] inline void add_products(Unaligned<T>* out, std::span<const void* const> terms,
                                                std::span<const double> scales, std::size_t count,
                                                std::index_sequence<i...> indices) {
  const auto from = element_pointers<T>(terms, 0, indices);
  const std::array factors{static_cast<T>(scales[i])...};
  TNT_ELEMENTS_ARE_INDEPENDENT
  for (std::size_t at = 0; at < count; ++at) {
    const auto product = [&](std::size_t term) TNT_INLINE_LAMBDA { return from[term][at].value * factors[term]; };
    const auto sum = [](T a, T b) TNT_INLINE_LAMBDA { return a + b; };
    out[at].value = in_tree<0, sizeof...(i)>(product, sum);
  }
}

template <typename T>
void add_in_registers(void* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                      Isa isa) {
  auto* typed = static_cast<Unaligned<T>*>(out);
  with_isa(isa, [&]() TNT_INLINE_LAMBDA {
    with_indices<max_in_registers>(terms.size(),
                                   [&](auto indices) TNT_INLINE_LAMBDA { add_products(typed, terms, scales, count, indices); });
  });
}

void add_in_blocks(std::byte* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                   tnt_dtype_t dtype, Isa isa) {
  std::vector<std::byte> products(terms.size() * product_bytes);
  std::vector<const void*> sources(terms.size());
  const std::size_t size = dtype_size(dtype);
  for (std::size_t at = 0; at < count; at += product_bytes / size) {
    const std::size_t part = std::min(product_bytes / size, count - at);
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const auto* from = terms[k] == nullptr ? nullptr : static_cast<const std::byte*>(terms[k]) + at * size;
      sources[k] = from;
      if (scales[k] == 1.0) continue;
      auto* product = products.data() + k * product_bytes;
      scale(product, dtype, from, dtype, part, scales[k], isa);
      sources[k] = product;
    }
    reduce(out + at * size, sources, part, dtype, TNT_SUM, isa);
  }
}

}  // namespace

void add_scaled(void* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                tnt_dtype_t dtype, Isa isa) {
  const bool in_registers = terms.size() <= max_in_registers && std::ranges::find(scales, 0.0) == scales.end();
  if (std::ranges::all_of(scales, [](double scale) { return scale == 1.0; })) {
    reduce(out, terms, count, dtype, TNT_SUM, isa);
  } else if (in_registers && dtype == TNT_FLOAT32) {
    add_in_registers<float>(out, terms, scales, count, isa);
  } else if (in_registers && dtype == TNT_FLOAT64) {
    add_in_registers<double>(out, terms, scales, count, isa);
  } else {
    add_in_blocks(static_cast<std::byte*>(out), terms, scales, count, dtype, isa);
  }
}

}  // namespace tnt
