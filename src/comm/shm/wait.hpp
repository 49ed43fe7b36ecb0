// Waiting for another process: spin, then yield, then sleep in the kernel until the event count changes. More ranks than cores
// are normal, so a waiting rank must not occupy the core that another rank needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// An event count in shared memory. A thread that changes shared state notifies it; a thread that waits for a change sleeps on
// it.
struct alignas(64) EventCount {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> sleepers{0};
};

// Wakes all sleepers. Costs one load if nobody sleeps. The waker does not issue a fence between its earlier store and its check
// for sleepers, so it may overlook a thread that is about to sleep. The first sleep of a waiter is therefore bounded at 50 us:
// when it ends, the waiter sees the store, and later notifications find the sleeper counted.
void notify_all(EventCount& event_count) noexcept;

// Sleeps until the count differs from `ticket` or the time has passed.
void wait_on_futex(EventCount& event_count, std::uint32_t ticket, std::int64_t max_ns) noexcept;
inline constexpr std::int64_t first_sleep_ns = 50'000;
inline constexpr std::int64_t sleep_ns = 20'000'000;

void cpu_pause() noexcept;  // in a spin loop: lets the other hyper-thread run
void yield_core() noexcept;

class SleeperGuard : NonCopyable {
 public:
  explicit SleeperGuard(EventCount& event_count) noexcept : event_count_(event_count) { event_count_.sleepers.fetch_add(1); }
  ~SleeperGuard() { event_count_.sleepers.fetch_sub(1); }

 private:
  EventCount& event_count_;
};

struct BackoffPolicy {
  std::int64_t spin_ns = 2'000;    // time of a small message from another core
  std::int64_t yield_ns = 20'000;  // lets other threads use this core; afterwards the thread sleeps
  static constexpr std::int64_t few_turns_ns = 5'000;

  // For a thread that has nothing else to do and waits for ranks that are a few microseconds away. A wake-up takes about 50 us.
  // The other ranks would fall asleep in that time, and all ranks would keep waking one another, so this policy spins longer.
  // It does not apply with more ranks than cores.
  [[nodiscard]] BackoffPolicy spinning() const noexcept {
    return spin_ns == 0 ? beside_computing() : BackoffPolicy{100'000, 100'000};
  }

  // For a thread that may wait for ranks that compute. With more ranks than cores, each of its turns would interrupt one of
  // them.
  [[nodiscard]] BackoffPolicy beside_computing() const noexcept {
    return spin_ns == 0 ? BackoffPolicy{0, few_turns_ns} : *this;
  }
};

// The policy for a group of ranks on one node, including this one, given by their process ids. With fewer cores than ranks,
// spinning only delays the rank that is waited for. An id of 0 or an unknown process counts as one that runs on the same cores
// as this process.
[[nodiscard]] BackoffPolicy backoff_policy_for(const std::vector<int>& pids) noexcept;

// Returns when ready() is true: the last reading of the clock, which is less than a microsecond old, or 0 if the clock was not
// read. check() is called before each long sleep and may throw to end the wait; it notices a change within 20 ms.
template <typename Ready, typename Check>
std::int64_t wait_until(EventCount& event_count, const BackoffPolicy& backoff, Ready&& ready, Check&& check) {
  constexpr int polls_per_clock_read = 16;  // reading the clock costs as much as several polls
  if (ready()) return 0;
  const std::int64_t begin = now_ns();
  for (std::int64_t waited = 0; waited < backoff.yield_ns; waited = now_ns() - begin) {
    if (waited >= backoff.spin_ns) yield_core();
    for (int i = 0; i < polls_per_clock_read; ++i) {
      if (ready()) return begin + waited;
      if (waited < backoff.spin_ns) cpu_pause();
    }
  }
  const CancellationDeferral deferral;  // check() opens and reads what it looks at
  const SleeperGuard counted(event_count);
  for (std::int64_t limit_ns = first_sleep_ns;; limit_ns = sleep_ns) {
    const std::uint32_t ticket = event_count.count.load();
    if (ready()) return now_ns();
    wait_on_futex(event_count, ticket, limit_ns);
    if (ready()) return now_ns();
    if (limit_ns == sleep_ns) check();
  }
}

}  // namespace tnt
