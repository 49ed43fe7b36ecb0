// Group calls: the operations that a thread calls between tnt_group_start and tnt_group_end are checked at once, kept, and
// begin together in tnt_group_end.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"

namespace tnt {

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

  // The first error, such as that of an argument that does not fit, is that of the whole group.
  void add(tnt_comm_t comm, const Collective& call, StreamHandle stream, const tnt_work_t* work);

  void start();
  // The last end enqueues the operations with streams, then runs the others and waits for them. Throws the first error.
  void end();

 private:
  // The communicator cannot be destroyed meanwhile.
  struct Kept {
    explicit Kept(tnt_comm_t comm) : on(comm) {}
    HandleUse<tnt_comm> on;
    Collective call;
    std::shared_ptr<const RankCounts> counts;
    StreamHandle stream = nullptr;
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
