// The pipeline of a collective's chunks: while one chunk is packed, reduced or unpacked, the network carries others.
#pragma once

#include <cstddef>

namespace tnt {

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
