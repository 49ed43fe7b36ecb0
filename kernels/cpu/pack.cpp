#include "kernels/cpu/pack.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/memory_model.hpp"

namespace tnt {
namespace {

template <typename T>
constexpr bool is_float16 = std::is_same_v<T, float16>;
template <typename T>
constexpr bool is_floating = std::is_floating_point_v<typename Accumulator<T>::type>;

// Integers saturate at 64 bits, because the conversion of larger values is undefined (as for NaN, which no finite scale gives).
template <typename A, typename S>
A saturate(S scaled) noexcept {
  if constexpr (std::is_integral_v<A>) {
    constexpr bool is_signed = std::is_signed_v<A>;
    constexpr double low = is_signed ? -0x1p63 : 0;
    constexpr double high = is_signed ? 0x1p63 - 1024 : 0x1p64 - 2048;  // the greatest double below 2^63 or 2^64
    return static_cast<A>(std::clamp(scaled, low, high));
  } else {
    return static_cast<A>(scaled);
  }
}

template <typename To, typename From>
[[gnu::always_inline]] inline void scale_elements(Unaligned<To>* to, const Unaligned<From>* from, std::size_t count,
                                                  double scale) {
  using In = Accumulator<From>;
  using Out = Accumulator<To>;
  using A = std::conditional_t<std::is_same_v<typename In::type, float>, float, double>;
  const auto factor = static_cast<A>(scale);
#pragma GCC ivdep  // to may equal from; otherwise they do not overlap
  for (std::size_t i = 0; i < count; ++i) {
    const auto scaled = static_cast<A>(In::load(from[i].value)) * factor;
    to[i].value = Out::store(saturate<typename Out::type>(scaled));
  }
}

// To or from float16: directly from and to float, otherwise through blocks of float that stay in the L1 cache.
template <typename To, typename From>
[[gnu::always_inline]] inline void scale_float16(Unaligned<To>* to, const Unaligned<From>* from, std::size_t count,
                                                 double scale, Isa isa) {
  if constexpr (std::is_same_v<From, float>) {
    narrow(to, from, count, static_cast<float>(scale), isa);
  } else if (std::is_same_v<To, float> && scale == 1.0) {
    if constexpr (std::is_same_v<To, float>) widen(to, from, count, isa);
  } else {
    std::array<Unaligned<float>, 1024> block;  // NOLINT(*-member-init): written before it is read
    for (std::size_t at = 0; at < count; at += block.size()) {
      const std::size_t part = std::min(block.size(), count - at);
      if constexpr (!is_float16<From>) {
        scale_elements(block.data(), from + at, part, scale);
        narrow(to + at, block.data(), part, 1.0F, isa);
      } else {
        widen(block.data(), from + at, part, isa);
        if constexpr (is_float16<To>) {
          narrow(to + at, block.data(), part, static_cast<float>(scale), isa);
        } else {
          scale_elements(to + at, block.data(), part, scale);
        }
      }
    }
  }
}

template <typename To, typename From>
void scale_as(void* to, const void* from, std::size_t count, double scale, Isa isa) {
  if constexpr (std::is_same_v<To, From> || (is_floating<To> && is_floating<From>)) {
    auto* out = static_cast<Unaligned<To>*>(to);
    const auto* in = static_cast<const Unaligned<From>*>(from);
    with_isa(isa, [&]() TNT_INLINE_LAMBDA {
      if constexpr (is_float16<To> || is_float16<From>) {
        scale_float16(out, in, count, scale, isa);
      } else {
        scale_elements(out, in, count, scale);
      }
    });
  } else {
    fail(TNT_INVALID_ARGUMENT, "only floating-point types are cast to one another");
  }
}

}  // namespace

void scale(void* to, tnt_dtype_t to_dtype, const void* from, tnt_dtype_t from_dtype, std::size_t count, double scale, Isa isa) {
  if (count == 0) return;
  if (scale == 0.0 || from == nullptr) {  // zeros
    std::memset(to, 0, count * dtype_size(to_dtype));
  } else if (scale == 1.0 && to_dtype == from_dtype) {
    if (to != from) std::memcpy(to, from, count * dtype_size(to_dtype));
  } else {
    dispatch(to_dtype, [&]<typename To>() {
      dispatch(from_dtype, [&]<typename From>() { scale_as<To, From>(to, from, count, scale, isa); });
    });
  }
}

namespace {

void scale_into(std::byte* to, tnt_dtype_t to_dtype, const std::byte* from, tnt_dtype_t from_dtype, std::size_t count,
                double factor, Store store) {
  if (factor == 1.0 && to_dtype == from_dtype && from != nullptr) return copy(to, from, count * dtype_size(to_dtype), store);
  if (store == Store::cached) return scale(to, to_dtype, from, from_dtype, count, factor);
  // through a block that stays in the L1 cache
  alignas(64) std::array<std::byte, 4096> block;  // NOLINT(*-member-init): written before it is read
  const std::size_t size = dtype_size(to_dtype);
  const std::size_t per_block = block.size() / size;
  for (std::size_t at = 0; at < count; at += per_block) {
    const std::size_t part = std::min(per_block, count - at);
    scale(block.data(), to_dtype, from == nullptr ? nullptr : from + at * dtype_size(from_dtype), from_dtype, part, factor);
    copy(to + at * size, block.data(), part * size, Store::streaming);
  }
}

}  // namespace

FusedBuffer::FusedBuffer(std::span<const TensorView> views, tnt_dtype_t dtype) : views_(views), dtype_(dtype) {
  if (views.size() > 1) ends_.reserve(views.size());
  for (const TensorView& view : views) {
    count_ += view.count;
    if (views.size() > 1) ends_.push_back(count_);
  }
}

// Calls use(view, first element in the view, elements, byte offset from begin) for each part of [begin, begin + count).
template <typename Use>
void FusedBuffer::for_each_part(std::size_t begin, std::size_t count, Use&& use) const {
  if (count == 0) return;
  if (ends_.empty()) return use(views_[0], begin, count, 0);
  auto index = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (std::size_t at = begin; at < begin + count; ++index) {
    const TensorView& view = views_[index];
    const std::size_t first = at - (ends_[index] - view.count);
    const std::size_t part = std::min(view.count - first, begin + count - at);
    use(view, first, part, (at - begin) * dtype_size(dtype_));
    at += part;
  }
}

void FusedBuffer::pack(std::size_t begin, std::size_t count, void* to, Store store) const {
  if (!touches_memory(2 * count * dtype_size(dtype_))) return;
  for_each_part(begin, count, [&](const TensorView& view, std::size_t first, std::size_t part, std::size_t offset) {
    const tnt_dtype_t own = dtype_of(view);
    const auto* from = view.in == nullptr ? nullptr : static_cast<const std::byte*>(view.in) + first * dtype_size(own);
    scale_into(static_cast<std::byte*>(to) + offset, dtype_, from, own, part, view.scale, store);
  });
}

void FusedBuffer::unpack(std::size_t begin, std::size_t count, const void* from, Store store) const {
  if (!touches_memory(2 * count * dtype_size(dtype_))) return;
  for_each_part(begin, count, [&](const TensorView& view, std::size_t first, std::size_t part, std::size_t offset) {
    if (view.out == nullptr) return;
    const tnt_dtype_t own = dtype_of(view);
    scale_into(static_cast<std::byte*>(view.out) + first * dtype_size(own), own, static_cast<const std::byte*>(from) + offset,
               dtype_, part, 1.0, store);
  });
}

const void* FusedBuffer::in_place(std::size_t begin, std::size_t count) const noexcept {
  const void* found = nullptr;
  for_each_part(begin, count, [&](const TensorView& view, std::size_t first, std::size_t part, std::size_t /*offset*/) {
    if (part != count || view.scale != 1.0 || dtype_of(view) != dtype_) return;
    found = static_cast<const std::byte*>(view.in) + first * dtype_size(dtype_);
  });
  return found;
}

void* FusedBuffer::out_in_place(std::size_t begin, std::size_t count) const noexcept {
  void* found = nullptr;
  for_each_part(begin, count, [&](const TensorView& view, std::size_t first, std::size_t part, std::size_t /*offset*/) {
    if (part != count || view.out == nullptr || dtype_of(view) != dtype_) return;
    found = static_cast<std::byte*>(view.out) + first * dtype_size(dtype_);
  });
  return found;
}

bool FusedBuffer::narrows() const noexcept {
  return std::all_of(views_.begin(), views_.end(),
                     [&](const TensorView& view) { return dtype_size(dtype_of(view)) > dtype_size(dtype_); });
}

}  // namespace tnt
