#include "comm/network/doubling_limit.hpp"

#include <vector>

#include "base/median.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/timed_calls.hpp"

namespace tnt {
namespace {

constexpr double seconds_for_doubling = 0.2;
constexpr int times = 5;
constexpr double clearly = 0.97;           // beyond noise
constexpr std::size_t min_measured = 512;  // bytes; below it messages cost the same whatever they hold
constexpr std::size_t max_measured = std::size_t{32} * 1024;

// The median on the slowest rank, with the algorithm.
double time_of(NetworkCommunicator& comm, TimedCalls& calls, AllReduceAlgorithm algorithm, std::size_t bytes) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    all.push_back(calls.one(Call::all_reduce, bytes, [&] { comm.force({.all_reduce = algorithm}); }));
    comm.force({});
  }
  return calls.largest_of_all(median(all));
}

}  // namespace

std::optional<std::size_t> measure_doubling_limit(NetworkCommunicator& comm, double timeout) {
  if (comm.size() < static_cast<int>(min_members_to_measure) || comm.is_on_one_node()) return std::nullopt;
  const AllReduceAlgorithm beyond = beyond_doubling(static_cast<std::size_t>(comm.size()));
  TimedCalls calls(comm, timeout, "measuring all_reduce");
  std::size_t limit = min_measured / 2;
  for (std::size_t bytes = min_measured; bytes <= max_measured && calls.elapsed() < seconds_for_doubling; bytes *= 2) {
    const double doubling = time_of(comm, calls, AllReduceAlgorithm::doubling, bytes);
    if (time_of(comm, calls, beyond, bytes) < clearly * doubling) break;
    limit = bytes;
  }
  return limit;
}

}  // namespace tnt
