// Waiting for another process: spin a moment, yield a moment, then sleep in the kernel until the bell rings. More ranks
// than cores is normal, so a waiting rank must not hold a core that another needs to get there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace tnt {

// An event count: who has changed something rings, who waits for a change sleeps on it. Lies in shared memory.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> sleepers{0};
};

// Wakes all sleepers. The change must have been stored before, sequentially consistent, so that a rank that is about to sleep
// either sees it or is seen here. Costs one load when nobody sleeps.
void ring(Bell& bell) noexcept;

// Sleeps until the bell rings after its count was `ticket`, or 20 ms have passed.
void sleep_on(Bell& bell, std::uint32_t ticket) noexcept;

void pause_briefly() noexcept;  // for a spinning loop: lets the other hyper-thread run
void yield_core() noexcept;

struct Patience {
  std::int64_t spin_ns = 2'000;    // as long as a neighbour on another core needs for a small message
  std::int64_t yield_ns = 20'000;  // then others of this core may run; after it, sleep
};

// For so many ranks on this process' cores: with fewer cores than ranks, spinning only keeps away the rank one waits for.
[[nodiscard]] Patience patience_for(std::size_t ranks) noexcept;

// Returns when ready() is true. check() is called before each sleep and may throw to give up; it sees a change of what it
// looks at within 20 ms.
template <typename Ready, typename Check>
void wait_until(Bell& bell, const Patience& patience, Ready&& ready, Check&& check) {
  if (ready()) return;
  const std::int64_t begin = now_ns();
  for (std::int64_t waited = 0; waited < patience.yield_ns; waited = now_ns() - begin) {
    if (waited < patience.spin_ns) {
      pause_briefly();
    } else {
      yield_core();
    }
    if (ready()) return;
  }
  while (true) {
    bell.sleepers.fetch_add(1);
    const std::uint32_t ticket = bell.count.load();
    const bool done = ready();
    if (!done) sleep_on(bell, ticket);
    bell.sleepers.fetch_sub(1);
    if (done || ready()) return;
    check();
  }
}

}  // namespace tnt
