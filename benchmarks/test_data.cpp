#include "benchmarks/test_data.hpp"

#include <algorithm>

#include "benchmarks/element.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/shares.hpp"

namespace tnt::bench {
namespace {

// SplitMix64 (S. Vigna): only its finaliser, on a counter made of element, rank and seed.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t mixed(std::uint64_t seed, int rank, std::size_t i) {
  return mixed(mixed(i) ^ (seed * 0x632be59bd9b4e019U) ^ (static_cast<std::uint64_t>(rank) << 48));
}

constexpr int max_contributors = 8;

bool contributes(const Problem& problem, int rank, std::size_t i) {
  if (problem.ranks <= max_contributors) return true;
  const auto first = static_cast<int>(mixed(i + problem.seed) % static_cast<std::uint64_t>(problem.ranks));
  return (rank - first + problem.ranks) % problem.ranks < max_contributors;
}

bool is_logical(tnt_op_t op) { return op == TNT_LAND || op == TNT_LOR || op == TNT_LXOR; }

double combine(double a, double b, tnt_op_t op) {
  switch (op) {
    case TNT_MIN: return std::min(a, b);
    case TNT_MAX: return std::max(a, b);
    case TNT_PROD: return a * b;
    case TNT_LAND: return a != 0 && b != 0 ? 1 : 0;
    case TNT_LOR: return a != 0 || b != 0 ? 1 : 0;
    case TNT_LXOR: return (a != 0) != (b != 0) ? 1 : 0;
    case TNT_BAND: return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    case TNT_BOR: return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    case TNT_BXOR: return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
    default: return a + b;
  }
}

}  // namespace

std::size_t in_count(const Problem& problem) {
  if (problem.collective == Collective::all_gather_v) return share(problem.count, problem.ranks, problem.rank);
  const bool of_all = problem.collective == Collective::reduce_scatter || problem.collective == Collective::all_to_all ||
                      problem.collective == Collective::scatter;
  return of_all ? problem.count * static_cast<std::size_t>(problem.ranks) : problem.count;
}

std::size_t out_count(const Problem& problem) {
  const bool on_root_alone = problem.collective == Collective::reduce || problem.collective == Collective::gather;
  if (on_root_alone && problem.rank != problem.root) return 0;
  if (problem.collective == Collective::reduce_scatter_v) return share(problem.count, problem.ranks, problem.rank);
  if (problem.collective == Collective::all_to_all_v) {
    return static_cast<std::size_t>(problem.ranks) * share(problem.count, problem.ranks, problem.rank);
  }
  const bool of_all = problem.collective == Collective::all_gather || problem.collective == Collective::all_to_all ||
                      problem.collective == Collective::gather;
  return of_all ? problem.count * static_cast<std::size_t>(problem.ranks) : problem.count;
}

double exact_input(const Problem& problem, int rank, std::size_t i) {
  const std::uint64_t random = mixed(problem.seed, rank, i);
  const bool neutral = reduces(problem.collective) && !contributes(problem, rank, i);
  if (problem.op == TNT_PROD) return neutral ? 1 : (random % 4 == 0 ? 2 : 1);
  const bool small = problem.op == TNT_AVG && reduces(problem.collective);
  const int amplitude = small ? 2 : 8;
  const int factor = small ? problem.ranks : 1;  // so that the average is an integer
  const bool whole = problem.dtype == TNT_UINT8 || problem.dtype == TNT_UINT32 || problem.dtype == TNT_UINT64;
  const auto span = static_cast<std::uint64_t>(whole ? amplitude + 1 : 2 * amplitude + 1);
  const auto value = static_cast<int>(random % span) - (whole ? 0 : amplitude);
  return neutral ? 0 : value * factor;
}

double random_input(const Problem& problem, int rank, std::size_t i) {
  const auto random = static_cast<double>(mixed(problem.seed, rank, i) >> 11);
  return rounded(std::ldexp(random, -52) - 1.0, problem.dtype);
}

Origin origin(const Problem& problem, std::size_t i) {
  switch (problem.collective) {
    case Collective::gather:
    case Collective::all_gather: return {i % problem.count, static_cast<int>(i / problem.count)};
    case Collective::broadcast: return {i, problem.root};
    case Collective::scatter: return {static_cast<std::size_t>(problem.rank) * problem.count + i, problem.root};
    case Collective::sendrecv: return {i, (problem.rank + problem.ranks - 1) % problem.ranks};
    case Collective::all_to_all:
      return {static_cast<std::size_t>(problem.rank) * problem.count + i % problem.count, static_cast<int>(i / problem.count)};
    case Collective::reduce_scatter: return {static_cast<std::size_t>(problem.rank) * problem.count + i, -1};
    case Collective::all_gather_v: {
      int rank = 0;
      while (i >= share_begin(problem.count, problem.ranks, rank + 1)) ++rank;
      return {i - share_begin(problem.count, problem.ranks, rank), rank};
    }
    case Collective::reduce_scatter_v: return {share_begin(problem.count, problem.ranks, problem.rank) + i, -1};
    case Collective::all_to_all_v: {
      const std::size_t own = share(problem.count, problem.ranks, problem.rank);
      return {share_begin(problem.count, problem.ranks, problem.rank) + i % own, static_cast<int>(i / own)};
    }
    default: return {i, -1};
  }
}

double expected(const Problem& problem, Input input, std::size_t i) {
  const Origin from = origin(problem, i);
  if (from.rank >= 0) return input(problem, from.rank, from.element);
  double result = input(problem, 0, from.element);
  if (problem.ranks == 1 && is_logical(problem.op)) return result != 0 ? 1 : 0;
  for (int rank = 1; rank < problem.ranks; ++rank) result = combine(result, input(problem, rank, from.element), problem.op);
  return problem.op == TNT_AVG ? result / problem.ranks : result;
}

void fill(const Problem& problem, Input input, void* buffer) {
  const std::size_t count = in_count(problem);
  for (std::size_t i = 0; i < count; ++i) store(buffer, i, problem.dtype, input(problem, problem.rank, i));
}

}  // namespace tnt::bench
