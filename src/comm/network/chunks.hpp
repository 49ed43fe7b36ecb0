// How the elements of a collective are cut into chunks, and a chunk into one slice for each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tnt {

inline constexpr std::size_t cache_line_bytes = 64;
// Bytes of one member's slice of each chunk, if `bytes` are cut for so many members. There are at least four chunks, so that
// one travels while another is processed. A slice is at least min_slice, large enough for the full rate of a network, and the
// total over all members is bounded.
inline constexpr std::size_t smallest_slice = std::size_t{32} * 1024;
inline constexpr std::size_t smallest_slice_on_one_node = std::size_t{512} * 1024;  // where nothing travels while ranks compute
[[nodiscard]] inline std::size_t slice_bytes(std::size_t bytes, std::size_t members, std::size_t min_slice = smallest_slice) {
  constexpr std::size_t max_total = std::size_t{4} * 1024 * 1024;
  constexpr std::size_t max_slice = std::size_t{512} * 1024;
  const std::size_t wanted =
      std::clamp(bytes / members / 4, min_slice, std::max(min_slice, std::min(max_slice, max_total / members)));
  return wanted / cache_line_bytes * cache_line_bytes;
}

[[nodiscard]] inline std::size_t chunk_count(std::size_t count, std::size_t per_chunk) {
  return (count + per_chunk - 1) / per_chunk;
}

// Elements [first, second) of the member's slice in a chunk of count elements. Borders lie on cache lines.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> slice_of(std::size_t member, std::size_t members, std::size_t count,
                                                                  std::size_t size) {
  const std::size_t line = cache_line_bytes / size;
  const std::size_t lines = (count + line - 1) / line;
  const auto border = [&](std::size_t index) { return std::min(count, lines * index / members * line); };
  return {border(member), border(member + 1)};
}

}  // namespace tnt
