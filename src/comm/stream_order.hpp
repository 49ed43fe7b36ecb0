// Orders a caller's stream and a communicator's stream: earlier work of the caller comes before the operation, later work after
// it. On the caller's stream: one event record and one wait.
#pragma once

#include <span>
#include <utility>

#include "comm/device_communicator.hpp"
#include "device/handles.hpp"

namespace tnt {

// Two events that every call reuses. For one thread at a time.
class StreamOrder {
 public:
  StreamOrder(Device& device, DeviceCommunicator& comm) : comm_(&comm), before_(device), after_(device) {}

  // operation enqueues on comm.stream(). If it throws, the caller's stream does not wait.
  template <typename Operation>
  void operator()(StreamHandle caller, Operation&& operation) {
    after(caller);
    std::forward<Operation>(operation)();
    before({&caller, 1});
  }

  // The first half: later work on comm.stream() comes after the earlier work of the caller's stream.
  void after(StreamHandle caller) {
    before_.record(caller);
    before_.wait_on(comm_->stream());
  }

  // The second half: later work of the callers' streams comes after the earlier work of comm.stream().
  void before(std::span<const StreamHandle> callers) {
    after_.record(comm_->stream());
    for (const StreamHandle caller : callers) after_.wait_on(caller);
  }

 private:
  DeviceCommunicator* comm_;
  Event before_;
  Event after_;
};

}  // namespace tnt
