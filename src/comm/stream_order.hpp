// The order between a caller's stream and a communicator's: what the caller enqueued before happens before, what it enqueues
// after happens after. On its stream: one event record and one wait.
#pragma once

#include <utility>

#include "comm/device_communicator.hpp"
#include "device/handles.hpp"

namespace tnt {

// Two events, used again by every call; of one thread at a time.
class StreamOrder {
 public:
  StreamOrder(Device& device, DeviceCommunicator& comm) : comm_(&comm), before_(device), after_(device) {}

  // operation enqueues on comm.stream(). If it throws, the caller's stream waits for nothing.
  template <typename Operation>
  void operator()(StreamHandle caller, Operation&& operation) {
    after(caller);
    std::forward<Operation>(operation)();
    after_.record(comm_->stream());
    after_.wait_on(caller);
  }

  // The first half: what is enqueued on comm.stream() from now on comes after what the caller's stream has.
  void after(StreamHandle caller) {
    before_.record(caller);
    before_.wait_on(comm_->stream());
  }

 private:
  DeviceCommunicator* comm_;
  Event before_;
  Event after_;
};

}  // namespace tnt
