// Waiting for another process: spin a moment, yield a moment, then sleep in the kernel until the bell rings. More ranks
// than cores is normal, so a waiting rank must not hold a core that another needs to get there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"

namespace tnt {

// An event count: who has changed something rings, who waits for a change sleeps on it. Lies in shared memory.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> sleepers{0};
};

// Wakes all sleepers. Costs one load when nobody sleeps: there is no fence between the change, stored before, and that load,
// so that one who is just about to sleep may be overlooked. That is why the first sleep is a nap: when it ends the change has
// long been seen, and later changes find the sleeper counted.
void ring(Bell& bell) noexcept;

// Sleeps until the bell rings after its count was `ticket`, or so much time has passed.
void sleep_on(Bell& bell, std::uint32_t ticket, std::int64_t longest_ns) noexcept;
inline constexpr std::int64_t nap_ns = 50'000;
inline constexpr std::int64_t sleep_ns = 20'000'000;

void pause_briefly() noexcept;  // for a spinning loop: lets the other hyper-thread run
void yield_core() noexcept;

class CountedSleeper {
 public:
  explicit CountedSleeper(Bell& bell) noexcept : bell_(bell) { bell_.sleepers.fetch_add(1); }
  CountedSleeper(const CountedSleeper&) = delete;
  CountedSleeper& operator=(const CountedSleeper&) = delete;
  ~CountedSleeper() { bell_.sleepers.fetch_sub(1); }

 private:
  Bell& bell_;
};

struct Patience {
  std::int64_t spin_ns = 2'000;    // as long as a neighbour on another core needs for a small message
  std::int64_t yield_ns = 20'000;  // then others of this core may run; after it, sleep

  // Of one who has nothing else to do, for others who are a few microseconds of work away. To be woken takes some 50 us, in
  // which they fall asleep in turn, and all go on waking one another: spin for longer than that. Not with more ranks than
  // cores.
  [[nodiscard]] Patience engaged() const noexcept { return spin_ns == 0 ? *this : Patience{100'000, 100'000}; }
};

// For a group of ranks on one node, this one included, by their processes: with fewer cores than ranks that can run on no
// others, spinning only keeps away the rank one waits for. 0, or a process of which nothing is known, counts as one that runs
// where this one does.
[[nodiscard]] Patience patience_for(const std::vector<int>& pids) noexcept;

// Returns when ready() is true. check() is called before each sleep and may throw to give up; it sees a change of what it
// looks at within 20 ms.
template <typename Ready, typename Check>
void wait_until(Bell& bell, const Patience& patience, Ready&& ready, Check&& check) {
  constexpr int looks = 16;  // between two at the clock, which costs as much as several
  if (ready()) return;
  const std::int64_t begin = now_ns();
  for (std::int64_t waited = 0; waited < patience.yield_ns; waited = now_ns() - begin) {
    if (waited >= patience.spin_ns) yield_core();
    for (int i = 0; i < looks; ++i) {
      if (ready()) return;
      if (waited < patience.spin_ns) pause_briefly();
    }
  }
  const CountedSleeper counted(bell);
  for (std::int64_t longest = nap_ns;; longest = sleep_ns) {
    const std::uint32_t ticket = bell.count.load();
    if (ready()) return;
    sleep_on(bell, ticket, longest);
    if (ready()) return;
    if (longest == sleep_ns) check();
  }
}

}  // namespace tnt
