#include "comm/nccl/handle.hpp"

#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace tnt {
namespace {

// A call in progress connects ranks, which takes milliseconds, so a waiting thread releases its core.
void sleep_briefly() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

bool is_error(nccl::ncclResult_t state) { return state != nccl::ncclSuccess && state != nccl::ncclInProgress; }

// How long an abort waits for a thread that is inside a call.
constexpr double abort_grace_seconds = 1.0;
constexpr double blocked_call_seconds = 10.0;  // it returns by itself

}  // namespace

NcclHandle::~NcclHandle() { abort(); }

nccl::ncclComm_t NcclHandle::live_comm() {
  const nccl::ncclComm_t comm = comm_;
  if (comm == nullptr) {
    interrupt_();  // throws the reason
    fail(TNT_ABORTED, "the communicator of {} was aborted", library_->name());
  }
  return comm;
}

void NcclHandle::synchronise_state(const char* what) {
  const Deadline deadline(timeout_);
  while (true) {
    nccl::ncclResult_t state = nccl::ncclSuccess;
    {
      const std::scoped_lock lock(mutex_);
      const nccl::ncclComm_t comm = live_comm();
      TNT_NCCL(*library_, CommGetAsyncError, comm, &state);
      if (is_error(state)) fail(TNT_SYSTEM, "{} failed: {}", what, library_->error_text(state, comm));
    }
    if (state != nccl::ncclInProgress) return;
    interrupt_();
    if (deadline.passed()) {
      fail(TNT_TIMEOUT,
           "{} of {} has not finished within {} s: a rank has not called it, or cannot be reached (NCCL_DEBUG=INFO tells more; "
           "NCCL_SOCKET_IFNAME chooses the network; TNT_TIMEOUT sets the deadline)",
           what, library_->name(), timeout_);
    }
    sleep_briefly();
  }
}

void NcclHandle::open(const char* what, const std::function<nccl::ncclResult_t(nccl::ncclComm_t*)>& make) {
  {
    const std::scoped_lock lock(mutex_);
    check_nccl(make(&new_comm_), what, *library_, __FILE__, __LINE__);
    comm_ = new_comm_;
  }
  synchronise_state(what);
}

// The parent is in progress until the child's handle is known.
void NcclHandle::make_blocking_child(NcclHandle& parent, int rank, nccl::ncclConfig_t config) {
  config.blocking = 1;
  parent.new_comm_ = nullptr;
  parent.call("ncclCommSplit",
              [&](nccl::ncclComm_t comm) { return TNT_NCCL(*library_, CommSplit, comm, 0, rank, &parent.new_comm_, &config); });
  blocking_ = true;
  comm_ = parent.new_comm_;
}

std::optional<Error> NcclHandle::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const nccl::ncclComm_t comm = comm_;
  if (!lock || comm == nullptr) return std::nullopt;
  try {
    nccl::ncclResult_t state = nccl::ncclSuccess;
    TNT_NCCL(*library_, CommGetAsyncError, comm, &state);
    if (!is_error(state)) return std::nullopt;
    return Error(TNT_SYSTEM, fmt::format("{} failed: {}", library_->name(), library_->error_text(state, comm)));
  } catch (const Error& error) {
    return error;
  }
}

// First lets a thread that is inside a call return. In a call of a communicator that does not block, a thread can only wait for
// the device, and the device for missing ranks: the abort frees it. In a call of a blocking one, NCCL's own code still uses the
// communicator, which the abort would free; the abort of the parent has told it to return.
void NcclHandle::abort() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  const Deadline deadline(blocking_ ? blocked_call_seconds : abort_grace_seconds);
  while (!lock.try_lock() && !deadline.passed()) sleep_briefly();
  if (!lock && blocking_) return leave();
  const nccl::ncclComm_t comm = comm_.exchange(nullptr);
  if (comm == nullptr) return;
  const nccl::ncclResult_t result = (*library_)->CommAbort(comm);
  if (is_error(result)) {
    log(LogLevel::warning, "ncclCommAbort failed: {}", (*library_)->GetErrorString(result));
  }
}

void NcclHandle::leave() noexcept {
  const nccl::ncclComm_t comm = comm_.exchange(nullptr);
  if (comm == nullptr) return;
  log(LogLevel::warning, "a communicator of {} is not freed: a call of it does not return, or a CUDA graph still uses it",
      library_->name());
}

void NcclHandle::close() noexcept {
  try {
    call("ncclCommFinalize", [&](nccl::ncclComm_t comm) { return TNT_NCCL(*library_, CommFinalize, comm); });
    const std::scoped_lock lock(mutex_);
    const nccl::ncclComm_t comm = comm_.exchange(nullptr);
    if (comm != nullptr) TNT_NCCL(*library_, CommDestroy, comm);
  } catch (const Error& error) {
    log(LogLevel::info, "{}", error.what());
    abort();
  }
}

}  // namespace tnt
