// A non-blocking NCCL communicator. Any call may be in progress when it returns; it is then polled until it is done,
// interrupted or out of time. This makes it possible to abort while another thread is inside a call.
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
  // interrupt: called while a call is in progress; throws the error of an abort.
  NcclHandle(std::shared_ptr<const NcclLibrary> library, double timeout, std::function<void()> interrupt)
      : library_(std::move(library)), timeout_(timeout), interrupt_(std::move(interrupt)) {}
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;
  ~NcclHandle();  // aborts a communicator that was not closed

  [[nodiscard]] const NcclLibrary& library() const noexcept { return *library_; }

  // make(ncclComm_t*) starts to create the communicator; open returns when it exists. what: for errors.
  void open(const char* what, const std::function<nccl::ncclResult_t(nccl::ncclComm_t*)>& make);

  // use(ncclComm_t) calls NCCL and checks the result. For one thread at a time.
  template <typename Use>
  void call(const char* what, Use&& use) {
    nccl::ncclResult_t result = nccl::ncclSuccess;
    {
      const std::scoped_lock lock(mutex_);
      result = std::forward<Use>(use)(live_comm());
    }
    if (result == nccl::ncclInProgress) synchronise_state(what);
  }

  // Creates a child of the parent. On return both can be used.
  void split(NcclHandle& parent, int color, int key);

  // An asynchronous error of NCCL, if one is known; does not wait.
  [[nodiscard]] std::optional<Error> async_error();

  void abort() noexcept;  // from any thread; work on the device ends soon
  void close() noexcept;  // finalizes and destroys; aborts after an interruption or its deadline

 private:
  [[nodiscard]] nccl::ncclComm_t live_comm();  // call with the mutex held; throws after an abort
  void synchronise_state(const char* what);

  std::shared_ptr<const NcclLibrary> library_;
  double timeout_;
  std::function<void()> interrupt_;
  std::mutex mutex_;  // NCCL calls on a communicator are not thread-safe
  std::atomic<nccl::ncclComm_t> comm_{nullptr};
  nccl::ncclComm_t new_comm_ = nullptr;  // NCCL writes a new handle here, possibly long after the call, from its own thread
};

}  // namespace tnt
