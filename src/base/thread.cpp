#include "base/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "common/error.hpp"
#include "common/non_copyable.hpp"

namespace tnt {
namespace {

// A new thread inherits the mask of the thread that starts it.
class AllSignalsBlocked : NonCopyable {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
  try {
    const AllSignalsBlocked blocked;
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    fail(TNT_SYSTEM,
         "cannot start the thread {}: {}: raise the limit on processes and threads (ulimit -u, or pids.max of the "
         "cgroup), or free memory",
         name, error.code().message());
  }
}

}  // namespace tnt
