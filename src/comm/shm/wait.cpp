#include "comm/shm/wait.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace tnt {

void notify_all(EventCount& event_count) noexcept {
  if (event_count.sleepers.load() == 0) return;
  event_count.count.fetch_add(1);
  syscall(SYS_futex, &event_count.count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_on_futex(EventCount& event_count, std::uint32_t ticket, std::int64_t max_ns) noexcept {
  const timespec limit{0, static_cast<long>(max_ns)};
  syscall(SYS_futex, &event_count.count, FUTEX_WAIT, ticket, &limit, nullptr, 0);
}

void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void yield_core() noexcept { sched_yield(); }

BackoffPolicy backoff_policy_for(const std::vector<int>& pids) noexcept {
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return {};
  // ranks that mpirun bound to separate cores do not compete, however few cores each of them has
  const auto runs_here_only = [&own](int pid) {
    cpu_set_t theirs;
    if (sched_getaffinity(pid, sizeof(theirs), &theirs) != 0) return true;
    cpu_set_t both;
    CPU_AND(&both, &own, &theirs);
    return CPU_EQUAL(&both, &theirs) != 0;
  };
  const auto rivals = std::count_if(pids.begin(), pids.end(), runs_here_only);
  const std::ptrdiff_t cores = CPU_COUNT(&own);
  if (rivals <= cores) return {};
  // A wake-up takes longer than the other ranks' turns, unless there are many: measured with 4, 8 and 16 ranks on two cores.
  return {.spin_ns = 0, .yield_ns = rivals <= 4 * cores ? 40'000 : BackoffPolicy::few_turns_ns};
}

}  // namespace tnt
