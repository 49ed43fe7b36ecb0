// pthread_cancel: no function of the library is a point where a thread is cancelled.
#pragma once

#include <pthread.h>

#include "common/non_copyable.hpp"

namespace tnt {

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
