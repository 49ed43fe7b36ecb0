// Group calls: the operations that a thread calls between tnt_group_start and tnt_group_end are checked at once, kept, and
// begin together in tnt_group_end.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <optional>
#include <utility>

#include "api/boundary.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "comm/device_communicator.hpp"

namespace tnt {

// An operation that is kept. Without a stream, the executor runs on_host. With one, it is the collective on_device, or the
// message.
struct GroupedCall {
  StreamHandle stream = nullptr;
  Executor* executor = nullptr;
  std::function<void(Communicator&, const CallContext&)> on_host;
  std::function<void(tnt_comm&, DeviceCommunicator&)> on_device = {};
  Lane lane = Lane::collectives;  // of the message
  Message message = {};
};

// The group of one thread.
class CallGroup {
 public:
  CallGroup() = default;
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  ~CallGroup();  // of a thread that ends inside its group: nothing of it was started

  [[nodiscard]] static CallGroup& of_thread() noexcept;
  // Whether the calling thread is between start and end. Costs one load while no thread is.
  [[nodiscard]] static bool is_open() noexcept {
    return open_groups.load(std::memory_order_relaxed) > 0 && of_thread().depth_ > 0;
  }

  // check(const Communicator&) throws if an argument does not fit; make(tnt_comm&) returns the GroupedCall. The first error is
  // that of the whole group.
  template <typename Check, typename Make>
  void add(tnt_comm_t comm, const tnt_work_t* work, const Check& check, const Make& make) {
    try {
      if (work != nullptr) fail(TNT_INVALID_ARGUMENT, "work must be NULL in a group: tnt_group_end waits for its operations");
      std::list<Kept> one;
      Kept& kept = one.emplace_back(comm);
      check(std::as_const(*kept.on->communicator));
      kept.call = make(*kept.on);
      if (!failure_) calls_.splice(calls_.end(), one);
    } catch (const Error& error) {
      set_failure(error);
      throw;
    }
  }

  void start();
  // The last end enqueues the operations with streams, then runs the others and waits for them. Throws the first error.
  void end();

 private:
  // The communicator cannot be destroyed meanwhile.
  struct Kept {
    explicit Kept(tnt_comm_t comm) : on(comm) {}
    HandleUse<tnt_comm> on;
    GroupedCall call;
  };
  static void enqueue_on_devices(const std::list<Kept>& calls);
  static void run_on_host(const std::list<Kept>& calls);
  void set_failure(const Error& error);

  inline static std::atomic<int> open_groups{0};  // of all threads

  int depth_ = 0;
  std::list<Kept> calls_;
  std::optional<Error> failure_;
};

// Throws TNT_INVALID_ARGUMENT if the calling thread is inside a group. function: the one that may not stand there.
void refuse_in_group(const char* function);

}  // namespace tnt
