#include "reducer/communicator_pool.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tnt {

// Reducers end at different times on different ranks, so the ranks agree on what all of them have.
CommunicatorPool::Taken CommunicatorPool::take(Communicator& from, const CallContext& call) {
  std::array<std::uint8_t, max_spare> has{};
  {
    const std::scoped_lock lock(mutex_);
    std::transform(spare_.begin(), spare_.end(), has.begin(), [](const auto& spare) { return spare == nullptr ? 0 : 1; });
  }
  from.run({{.kind = Call::all_reduce, .op = TNT_MIN, .count = has.size()}, has.data(), has.data()}, call);
  const auto index = static_cast<std::size_t>(std::find(has.begin(), has.end(), 1) - has.begin());
  if (index < max_spare) {
    const std::scoped_lock lock(mutex_);
    return {std::move(spare_.at(index)), index};
  }
  auto made = flat_sums_ ? from.duplicate_with_flat_sums(call) : from.duplicate(call);
  return {std::move(made), made_++};
}

void CommunicatorPool::give_back(Taken taken) {
  if (taken.index >= max_spare) return;
  const std::scoped_lock lock(mutex_);
  spare_.at(taken.index) = std::move(taken.communicator);
}

}  // namespace tnt
