#include "benchmarks/shape.hpp"

#include "benchmarks/shares.hpp"

namespace tnt::bench {

bool reduces(Collective collective) {
  using enum Collective;
  return collective == all_reduce || collective == reduce_scatter || collective == reduce || collective == reduce_scatter_v;
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
         collective == scatter || uneven(collective);
}

bool uneven(Collective collective) {
  using enum Collective;
  return collective == all_gather_v || collective == reduce_scatter_v || collective == all_to_all_v;
}

std::size_t elements_of(Collective collective, std::size_t bytes, std::size_t element, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (collective == Collective::barrier) return 0;
  return parted(collective) && !uneven(collective) ? bytes / element / n * n : bytes / element;
}

Shape shape_of(Collective collective, std::size_t bytes, std::size_t element, int ranks, int rank) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t all = elements_of(collective, bytes, element, ranks);
  switch (collective) {
    case Collective::gather:
    case Collective::all_gather: return {all / n, all / n, all};
    case Collective::scatter:
    case Collective::reduce_scatter: return {all / n, all, all / n};
    case Collective::all_to_all: return {all / n, all, all};
    case Collective::all_gather_v: return {all, share(all, ranks, rank), all};
    case Collective::reduce_scatter_v: return {all, all, share(all, ranks, rank)};
    case Collective::all_to_all_v: return {all, all, n * share(all, ranks, rank)};
    case Collective::barrier: return {};
    default: return {all, all, all};
  }
}

double min_traffic(Collective collective, double bytes, int ranks, bool in_place) {
  if (ranks == 1) return in_place ? 0 : 2 * bytes;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::sendrecv: return 2.0 * ranks * bytes;
    case Collective::broadcast: return (in_place ? ranks : ranks + 1.0) * bytes;
    case Collective::gather:
    case Collective::scatter: return 2.0 * bytes;
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v: return (ranks + 1.0) * bytes;
    default: return 0;
  }
}

}  // namespace tnt::bench
