#include "support/ordering.hpp"

#include <algorithm>

namespace tnt::testing {

void Clock::set(std::size_t component, std::uint64_t tick) {
  if (component >= ticks_.size()) ticks_.resize(component + 1);
  ticks_[component] = tick;
}

void Clock::join(const Clock& other) {
  if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size());
  for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

// Splits the cell that contains `at` into two, so that one begins there.
void AccessHistory::split(const std::byte* at) {
  auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) return;
  const auto cell = std::prev(next);
  if (cell->first == at || cell->second.end <= at) return;
  cells_.emplace_hint(next, at, cell->second);
  cell->second.end = at;
}

// The cell that begins at `at`. If there is none, makes one up to the next cell or to `end`.
AccessHistory::Cells::iterator AccessHistory::cell_at(const std::byte* at, const std::byte* end) {
  const auto found = cells_.lower_bound(at);
  if (found != cells_.end() && found->first == at) return found;
  Cell cell;
  cell.end = found == cells_.end() ? end : std::min(end, found->first);
  return cells_.emplace_hint(found, at, cell);
}

std::vector<Conflict> AccessHistory::add(const Access& access, const std::shared_ptr<const Actor>& actor, const Clock& clock) {
  std::vector<Conflict> conflicts;
  const auto look = [&](const std::shared_ptr<const Actor>& earlier, bool writes, const auto& cell) {
    if (earlier == nullptr || earlier->before(clock)) return;
    const auto known = std::find_if(conflicts.begin(), conflicts.end(), [&](const Conflict& conflict) {
      return conflict.earlier == earlier && conflict.earlier_writes == writes;
    });
    if (known != conflicts.end()) {
      known->end = cell->second.end;
    } else {
      conflicts.push_back({earlier, writes, cell->first, cell->second.end});
    }
  };
  split(access.begin());
  split(access.end());
  for (const std::byte* at = access.begin(); at < access.end();) {
    const auto cell = cell_at(at, access.end());
    look(cell->second.writer, true, cell);
    auto& readers = cell->second.readers;
    if (access.write) {
      for (const auto& reader : readers) look(reader, false, cell);
      readers.clear();
      cell->second.writer = actor;
    } else {
      std::erase_if(readers, [&](const auto& reader) { return reader->component == actor->component; });
      readers.push_back(actor);
    }
    at = cell->second.end;
  }
  return conflicts;
}

void AccessHistory::forget(const void* memory, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  split(begin);
  split(begin + bytes);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(begin + bytes));
}

}  // namespace tnt::testing
