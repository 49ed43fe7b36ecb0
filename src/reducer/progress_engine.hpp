// The threads that reduce buckets while the callers go on: one for all reducers of a process, and another one only while
// several plans have to be reduced at the same time. It ends when it has had nothing to do for a while.
//
// Each plan has a communicator of its own, and a thread that reduces a bucket waits for the other ranks in it. With a single
// thread, or a communicator that plans share, all ranks would have to agree on one order of the buckets of all plans: a plan
// that is due here would wait for one that another rank cannot reduce yet. So the plans stay independent of each other, and
// the engine never lets a plan wait for another one, unless the system has no thread left for it. Then such a plan waits for a
// thread, or for its own caller, who reduces while he waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/non_copyable.hpp"

namespace tnt {

class ProgressEngine {
 public:
  // A reducer, as the engine sees it.
  class Client : NonCopyable {
   public:
    virtual ~Client() = default;
    // Reduces all buckets that are due. One thread at a time calls it. It may be called when nothing is due.
    virtual void serve() = 0;
    // Whether a bucket that was left to callers has waited for too long. Takes no lock.
    [[nodiscard]] virtual bool is_overdue() const noexcept = 0;
  };

  // How long a bucket that is left to callers waits for one, and a thread for a bucket before it ends beside another one. The
  // caller may be waiting for something that needs the bucket.
  static constexpr std::chrono::nanoseconds max_delay{1'000'000'000};

  ~ProgressEngine();  // after all clients were removed

  void add(Client& client);     // throws TNT_SYSTEM if there is no thread, and none can be started
  void remove(Client& client);  // returns when no thread serves the client
  void wake(Client& client);    // the client has a bucket for a thread
  // For callers that wait for long: the threads may all be busy, so that none sees an overdue bucket.
  void look_for_overdue();
  [[nodiscard]] std::size_t threads() const;
  [[nodiscard]] std::size_t busy() const;  // threads that serve a client

 private:
  struct Entry {
    Client* client;
    bool due = false;
    bool served = false;
  };

  [[nodiscard]] Entry& entry_of(const Client& client);
  [[nodiscard]] std::vector<Entry>::iterator next();
  [[nodiscard]] std::size_t served() const;
  void mark_overdue();
  void wake_or_start();
  void start_another();
  [[nodiscard]] bool retire();
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for the threads
  std::condition_variable served_;   // for remove()
  std::vector<Entry> entries_;
  bool stopping_ = false;
  bool warned_ = false;  // that no thread could be started
  std::vector<std::thread> threads_;
  std::vector<std::thread> retired_;  // have ended, or are about to: they need the lock no more
};

}  // namespace tnt
