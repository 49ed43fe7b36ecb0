// Threads of the library, and guards of what any thread does.
#pragma once

#include <pthread.h>

#include <atomic>
#include <functional>
#include <thread>

#include "common/non_copyable.hpp"

namespace tnt {

// Named, with all signals blocked, so that the main thread of the host program receives them. name: at most 15 characters; top
// and gdb show it. Throws TNT_SYSTEM if the system has no thread left.
[[nodiscard]] std::thread start_thread(const char* name, std::function<void()> body);

// Counts how many threads are in a scope.
class Counted : NonCopyable {
 public:
  explicit Counted(std::atomic<int>& number) noexcept : number_(number) { ++number_; }
  ~Counted() { --number_; }

 private:
  std::atomic<int>& number_;
};

// pthread_cancel: no function of the library is a point where a thread is cancelled.
//
// While one exists, a cancellation of this thread waits. The C API defers it until a call returns: unwinding from the middle of
// a collective would leave the other ranks in it. Cost: about 6 ns.
class CancellationDeferral : NonCopyable {
 public:
  CancellationDeferral() noexcept { (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDeferral() { (void)pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tnt
