// An NCCL communicator. It is made without blocking: a call may be in progress when it returns, and is then polled until it is
// done, interrupted or out of time. A blocking child of it can take the collectives.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/nccl/library.hpp"
#include "common/error.hpp"

namespace tnt {

class NcclHandle {
 public:
  // interrupt: called while a call is in progress; throws the error of an abort.
  NcclHandle(std::shared_ptr<const NcclLibrary> library, double timeout, std::function<void()> interrupt)
      : library_(std::move(library)), timeout_(timeout), interrupt_(std::move(interrupt)) {}
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

  // Makes this handle a communicator of the same ranks as the parent, which blocks in its calls. They share their resources and
  // their abort: aborting the parent ends the child's work on the device, and a call in which the child blocks returns.
  void make_blocking_child(NcclHandle& parent, int rank, nccl::ncclConfig_t config);

  // An asynchronous error of NCCL, if one is known; does not wait.
  [[nodiscard]] std::optional<Error> async_error();

  // From any thread; work on the device ends soon. A child is aborted after its parent.
  void abort() noexcept;
  void leave() noexcept;  // forgets the communicator, which is not freed; after its parent's abort
  void close() noexcept;  // finalizes and destroys; aborts after an interruption or its deadline

 private:
  [[nodiscard]] nccl::ncclComm_t live_comm();  // call with the mutex held; throws after an abort
  void synchronise_state(const char* what);

  std::shared_ptr<const NcclLibrary> library_;
  double timeout_;
  std::function<void()> interrupt_;
  std::mutex mutex_;  // NCCL calls on a communicator are not thread-safe
  std::atomic<nccl::ncclComm_t> comm_{nullptr};
  bool blocking_ = false;
  nccl::ncclComm_t new_comm_ = nullptr;  // NCCL writes a new handle here, possibly long after the call, from its own thread
};

}  // namespace tnt
