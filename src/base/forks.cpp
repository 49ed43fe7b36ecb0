#include "base/forks.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "common/error.hpp"

namespace tnt {

std::atomic<bool> forks::of_rank{false};

namespace {

// Never destroyed: a process may fork while its static objects are destroyed.
struct Process {
  std::mutex mutex;  // held during a fork, so that the fork finds complete data
  bool is_rank = false;
  std::vector<int> descriptors;
};

Process& process() {
  static auto* const instance = new Process;
  return *instance;
}

void before_fork() { process().mutex.lock(); }
void after_fork() { process().mutex.unlock(); }

// Only calls that are allowed between fork and exec.
void in_fork() {
  if (process().is_rank) forks::of_rank = true;
  for (int& descriptor : process().descriptors) {
    if (descriptor >= 0) (void)close(descriptor);
    descriptor = -1;
  }
  process().mutex.unlock();
}

void watch() {
  static const int failure = pthread_atfork(before_fork, after_fork, in_fork);
  if (failure != 0) fail(TNT_SYSTEM, "cannot register handlers for forks of this process (pthread_atfork)");
}

}  // namespace

void set_rank(bool is_rank) {
  watch();
  const std::scoped_lock lock(process().mutex);
  process().is_rank = is_rank;
}

ClosedInForks::ClosedInForks(int descriptor) : descriptor_(descriptor) {
  watch();
  const std::scoped_lock lock(process().mutex);
  process().descriptors.push_back(descriptor);
}

ClosedInForks::~ClosedInForks() {
  const std::scoped_lock lock(process().mutex);
  auto& all = process().descriptors;
  const auto found = std::find(all.begin(), all.end(), descriptor_);
  if (found != all.end()) all.erase(found);
}

}  // namespace tnt
