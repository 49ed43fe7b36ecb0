// How the elements of a collective are cut into chunks, and a chunk into one slice for each rank; the pipeline of the chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/memory.hpp"

namespace tnt {

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

// Elements [first, second) of the member's slice in a chunk of count elements. Borders lie on cache lines.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> slice_of(std::size_t member, std::size_t members, std::size_t count,
                                                                  std::size_t size) {
  const std::size_t line = cache_line_bytes / size;
  const std::size_t lines = divided_up(count, line);
  const auto border = [&](std::size_t index) { return std::min(count, lines * index / members * line); };
  return {border(member), border(member + 1)};
}

// The pipeline of a collective's chunks: while one chunk is packed, reduced or unpacked, the network carries others.
//
// Chunks between two stages of one chunk. A network may delay a message, for example when an answer waits behind other data in
// a router's queue. With more chunks in flight a delay matters less.
inline constexpr std::size_t pipeline_lag = 4;
inline constexpr std::size_t chunks_in_flight = 2 * pipeline_lag + 1;

// Every chunk passes through start, advance and finish in the same order on all ranks: start(i), advance(i - lag), finish(i - 2
// lag). first_begun(): called after the first start().
template <typename Stages, typename FirstBegun>
void run_pipeline(Stages& stages, std::size_t chunks, FirstBegun&& first_begun) {
  if (chunks == 0) return first_begun();
  constexpr std::size_t lag = pipeline_lag;
  for (std::size_t i = 0; i < chunks + 2 * lag; ++i) {
    if (i < chunks) stages.start(i);
    if (i == 0) first_begun();
    if (i >= lag && i < chunks + lag) stages.advance(i - lag);
    if (i >= 2 * lag) stages.finish(i - 2 * lag);
  }
}

// The handshake must have ended: data of another call would be cut or mixed.
template <typename Stages>
void run_pipeline(Stages& stages, std::size_t chunks) {
  run_pipeline(stages, chunks, [] {});
}

}  // namespace tnt
