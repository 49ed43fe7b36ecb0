#include "benchmarks/shape.hpp"

namespace tnt::bench {

bool reduces(Collective collective) {
  using enum Collective;
  return collective == all_reduce || collective == reduce_scatter || collective == reduce;
}

bool rooted(Collective collective) {
  using enum Collective;
  return collective == broadcast || collective == reduce || collective == gather || collective == scatter;
}

bool has_in_place(Collective collective) {
  using enum Collective;
  return collective == all_reduce || collective == broadcast || collective == reduce;
}

bool parted(Collective collective) {
  using enum Collective;
  return collective == all_gather || collective == reduce_scatter || collective == all_to_all || collective == gather ||
         collective == scatter;
}

Shape shape_of(Collective collective, std::size_t bytes, std::size_t element, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t all = bytes / element;
  switch (collective) {
    case Collective::gather:
    case Collective::all_gather: return {all / n, all / n, all / n * n};
    case Collective::scatter:
    case Collective::reduce_scatter: return {all / n, all / n * n, all / n};
    case Collective::all_to_all: return {all / n, all / n * n, all / n * n};
    case Collective::barrier: return {};
    default: return {all, all, all};
  }
}

double min_traffic(Collective collective, double bytes, int ranks, bool in_place) {
  if (ranks == 1) return in_place ? 0 : 2 * bytes;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::sendrecv: return 2.0 * ranks * bytes;
    case Collective::broadcast: return (in_place ? ranks : ranks + 1.0) * bytes;
    case Collective::gather:
    case Collective::scatter: return 2.0 * bytes;
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter: return (ranks + 1.0) * bytes;
    default: return 0;
  }
}

}  // namespace tnt::bench
