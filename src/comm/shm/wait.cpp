#include "comm/shm/wait.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace tnt {

void ring(Bell& bell) noexcept {
  if (bell.sleepers.load() == 0) return;
  bell.count.fetch_add(1);
  syscall(SYS_futex, &bell.count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(Bell& bell, std::uint32_t ticket, std::int64_t longest_ns) noexcept {
  const timespec limit{0, static_cast<long>(longest_ns)};
  syscall(SYS_futex, &bell.count, FUTEX_WAIT, ticket, &limit, nullptr, 0);
}

void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void yield_core() noexcept { sched_yield(); }

Patience patience_for(std::size_t ranks) noexcept {
  cpu_set_t cores;
  const bool known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
  const bool enough = !known || static_cast<std::size_t>(CPU_COUNT(&cores)) >= ranks;
  return enough ? Patience{} : Patience{0, 5'000};
}

}  // namespace tnt
