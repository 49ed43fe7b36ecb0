#include "kernels/cpu/pack.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/half.hpp"

namespace tnt {
namespace {

// Integers saturate at 64 bits, as the conversion of what is beyond is undefined (NaN, from no finite scale, aside).
template <typename A>
A from_scaled(std::conditional_t<std::is_same_v<A, float>, float, double> scaled) noexcept {
  if constexpr (std::is_integral_v<A>) {
    constexpr double low = -0x1p63;
    constexpr double high = 0x1p63 - 1024;  // the greatest double below 2^63
    return static_cast<A>(std::clamp(scaled, low, high));
  } else {
    return scaled;
  }
}

template <typename T>
[[gnu::always_inline]] inline void scale_as(Unaligned<T>* to, const Unaligned<T>* from, std::size_t count, double scale) {
  using Acc = Accumulator<T>;
  using A = std::conditional_t<std::is_same_v<typename Acc::type, float>, float, double>;
  const auto factor = static_cast<A>(scale);
#pragma GCC ivdep  // to may be from, and nothing else that overlaps it
  for (std::size_t i = 0; i < count; ++i) {
    const auto scaled = static_cast<A>(Acc::load(from[i].value)) * factor;
    to[i].value = Acc::store(from_scaled<typename Acc::type>(scaled));
  }
}

}  // namespace

void scale(void* to, const void* from, std::size_t count, tnt_dtype_t dtype, double scale, Isa isa) {
  if (count == 0) return;
  if (scale == 0.0 || from == nullptr) {  // nothing to add
    std::memset(to, 0, count * dtype_size(dtype));
  } else if (scale == 1.0) {
    if (to != from) std::memcpy(to, from, count * dtype_size(dtype));
  } else {
    dispatch(dtype, [&]<typename T>() {
      with_isa(isa, [&]() TNT_INLINE_LAMBDA {
        scale_as(static_cast<Unaligned<T>*>(to), static_cast<const Unaligned<T>*>(from), count, scale);
      });
    });
  }
}

namespace {

// Through a block that stays in the first-level cache.
void scale_streaming(std::byte* to, const std::byte* from, std::size_t count, tnt_dtype_t dtype, double factor) {
  alignas(64) std::array<std::byte, 4096> block;  // NOLINT(*-member-init): written before it is read
  const std::size_t size = dtype_size(dtype);
  const std::size_t per_block = block.size() / size;
  for (std::size_t at = 0; at < count; at += per_block) {
    const std::size_t part = std::min(per_block, count - at);
    scale(block.data(), from == nullptr ? nullptr : from + at * size, part, dtype, factor);
    copy(to + at * size, block.data(), part * size, Store::streaming);
  }
}

}  // namespace

Run::Run(std::span<const Piece> pieces, tnt_dtype_t dtype) : pieces_(pieces), dtype_(dtype) {
  if (pieces.size() > 1) ends_.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    count_ += piece.count;
    if (pieces.size() > 1) ends_.push_back(count_);
  }
}

// Calls use(piece, first element in the piece, elements, byte offset from begin) for each part of [begin, begin + count).
template <typename Use>
void Run::for_each_part(std::size_t begin, std::size_t count, Use&& use) const {
  if (count == 0) return;
  if (ends_.empty()) return use(pieces_[0], begin, count, 0);
  auto index = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (std::size_t at = begin; at < begin + count; ++index) {
    const Piece& piece = pieces_[index];
    const std::size_t first = at - (ends_[index] - piece.count);
    const std::size_t part = std::min(piece.count - first, begin + count - at);
    use(piece, first, part, (at - begin) * dtype_size(dtype_));
    at += part;
  }
}

void Run::pack(std::size_t begin, std::size_t count, void* to, Store store) const {
  const std::size_t size = dtype_size(dtype_);
  for_each_part(begin, count, [&](const Piece& piece, std::size_t first, std::size_t part, std::size_t offset) {
    const auto* from = piece.in == nullptr ? nullptr : static_cast<const std::byte*>(piece.in) + first * size;
    auto* out = static_cast<std::byte*>(to) + offset;
    if (store == Store::cached) {
      scale(out, from, part, dtype_, piece.scale);
    } else if (piece.scale == 1.0) {
      copy(out, from, part * size, store);
    } else {
      scale_streaming(out, from, part, dtype_, piece.scale);
    }
  });
}

void Run::unpack(std::size_t begin, std::size_t count, const void* from, Store store) const {
  const std::size_t size = dtype_size(dtype_);
  for_each_part(begin, count, [&](const Piece& piece, std::size_t first, std::size_t part, std::size_t offset) {
    if (piece.out == nullptr) return;
    copy(static_cast<std::byte*>(piece.out) + first * size, static_cast<const std::byte*>(from) + offset, part * size, store);
  });
}

const void* Run::in_place(std::size_t begin, std::size_t count) const noexcept {
  const void* found = nullptr;
  for_each_part(begin, count, [&](const Piece& piece, std::size_t first, std::size_t part, std::size_t /*offset*/) {
    if (part == count && piece.scale == 1.0) found = static_cast<const std::byte*>(piece.in) + first * dtype_size(dtype_);
  });
  return found;
}

}  // namespace tnt
