// Waiting for another process: spin a moment, yield a moment, then sleep in the kernel until the event count moves. More ranks
// than cores is normal, so a waiting rank must not hold a core that another needs to get there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"

namespace tnt {

// An event count: who has changed something rings, who waits for a change sleeps on it. Lies in shared memory.
struct alignas(64) EventCount {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> sleepers{0};
};

// Wakes all sleepers. Costs one load when nobody sleeps: there is no fence between the change, stored before, and that load,
// so that one who is just about to sleep may be overlooked. That is why the first sleep is a nap: when it ends the change has
// long been seen, and later changes find the sleeper counted.
void notify_all(EventCount& event_count) noexcept;

// Sleeps until the count is no longer `ticket`, or so much time has passed.
void wait_on_futex(EventCount& event_count, std::uint32_t ticket, std::int64_t max_ns) noexcept;
inline constexpr std::int64_t first_sleep_ns = 50'000;
inline constexpr std::int64_t sleep_ns = 20'000'000;

void cpu_pause() noexcept;  // for a spinning loop: lets the other hyper-thread run
void yield_core() noexcept;

class SleeperGuard {
 public:
  explicit SleeperGuard(EventCount& event_count) noexcept : event_count_(event_count) { event_count_.sleepers.fetch_add(1); }
  SleeperGuard(const SleeperGuard&) = delete;
  SleeperGuard& operator=(const SleeperGuard&) = delete;
  ~SleeperGuard() { event_count_.sleepers.fetch_sub(1); }

 private:
  EventCount& event_count_;
};

struct BackoffPolicy {
  std::int64_t spin_ns = 2'000;    // as long as a neighbour on another core needs for a small message
  std::int64_t yield_ns = 20'000;  // then others of this core may run; after it, sleep

  // Of one who has nothing else to do, for others who are a few microseconds of work away. To be woken takes some 50 us, in
  // which they fall asleep in turn, and all go on waking one another: spin for longer than that. Not with more ranks than
  // cores.
  [[nodiscard]] BackoffPolicy spinning() const noexcept { return spin_ns == 0 ? *this : BackoffPolicy{100'000, 100'000}; }
};

// For a group of ranks on one node, this one included, by their processes: with fewer cores than ranks that can run on no
// others, spinning only keeps away the rank one waits for. 0, or a process of which nothing is known, counts as one that runs
// where this one does.
[[nodiscard]] BackoffPolicy backoff_policy_for(const std::vector<int>& pids) noexcept;

// Returns when ready() is true. check() is called before each sleep and may throw to give up; it sees a change of what it
// looks at within 20 ms.
template <typename Ready, typename Check>
void wait_until(EventCount& event_count, const BackoffPolicy& backoff, Ready&& ready, Check&& check) {
  constexpr int polls_per_clock_read = 16;  // between two at the clock, which costs as much as several
  if (ready()) return;
  const std::int64_t begin = now_ns();
  for (std::int64_t waited = 0; waited < backoff.yield_ns; waited = now_ns() - begin) {
    if (waited >= backoff.spin_ns) yield_core();
    for (int i = 0; i < polls_per_clock_read; ++i) {
      if (ready()) return;
      if (waited < backoff.spin_ns) cpu_pause();
    }
  }
  const SleeperGuard counted(event_count);
  for (std::int64_t limit_ns = first_sleep_ns;; limit_ns = sleep_ns) {
    const std::uint32_t ticket = event_count.count.load();
    if (ready()) return;
    wait_on_futex(event_count, ticket, limit_ns);
    if (ready()) return;
    if (limit_ns == sleep_ns) check();
  }
}

}  // namespace tnt
