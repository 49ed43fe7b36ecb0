// A non-blocking communicator of NCCL's: any call may be in progress when it returns, and is asked for until it was taken, or
// until waiting makes no sense any more. That is what makes it possible to abort while another thread is in a call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "comm/nccl/nccl_library.hpp"

namespace tnt {

class NcclHandle {
 public:
  // interrupt: asked while a call is in progress; throws what has ended the job's communication.
  NcclHandle(std::shared_ptr<const NcclLibrary> library, double timeout, std::function<void()> interrupt)
      : library_(std::move(library)), timeout_(timeout), interrupt_(std::move(interrupt)) {}
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;
  ~NcclHandle();  // aborts what was not closed

  [[nodiscard]] const NcclLibrary& library() const noexcept { return *library_; }

  // make(ncclComm_t*) begins to make the communicator; returns when it is made. what: for errors.
  void open(const char* what, const std::function<nccl::ncclResult_t(nccl::ncclComm_t*)>& make);

  // use(ncclComm_t) calls NCCL and checks what it returns; from one thread at a time.
  template <typename Use>
  void call(const char* what, Use&& use) {
    nccl::ncclResult_t result = nccl::ncclSuccess;
    {
      const std::scoped_lock lock(mutex_);
      result = std::forward<Use>(use)(live_comm());
    }
    if (result == nccl::ncclInProgress) synchronise_state(what);
  }

  // The part of another communicator. At the end both can be used.
  void split(NcclHandle& parent, int color, int key);

  // An error that NCCL met after a call, if one is known; does not wait.
  [[nodiscard]] std::optional<Error> async_error();

  void abort() noexcept;  // from any thread; what is on the device ends soon
  void close() noexcept;  // finalizes and destroys; aborts if it was interrupted or its deadline passes

 private:
  [[nodiscard]] nccl::ncclComm_t live_comm();  // with the mutex held; throws if there is none (any more)
  void synchronise_state(const char* what);

  std::shared_ptr<const NcclLibrary> library_;
  double timeout_;
  std::function<void()> interrupt_;
  std::mutex mutex_;  // of the communicator: NCCL's calls on one are not for several threads
  std::atomic<nccl::ncclComm_t> comm_{nullptr};
  nccl::ncclComm_t new_comm_ = nullptr;  // where NCCL writes a new handle, maybe long after the call, from a thread of its own
};

}  // namespace tnt
