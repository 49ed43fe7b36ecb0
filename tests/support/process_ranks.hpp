// Ranks that are processes: forked from the test with the launcher's environment, and waited for with a deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace tnt::testing {

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to, or replacing, what the launcher sets; "" unsets a variable
  std::chrono::seconds deadline{90};               // after it the children are killed and the test fails
};

struct Ending {
  int code = -1;   // exit code, or
  int signal = 0;  // the signal that killed it
};

void* map_shared(std::size_t bytes);
void unmap_shared(void* memory, std::size_t bytes);

// Memory shared by the test and all its ranks.
template <typename T>
class Shared {
 public:
  Shared() : value_(new (map_shared(sizeof(T))) T()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { unmap_shared(value_, sizeof(T)); }
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

// Forks the ranks; no other thread may run at that time. The process of `body` exits with code 0, or 1 if an expectation failed
// in it.
class ProcessJob {
 public:
  using Body = std::function<void(int rank)>;

  ProcessJob(int ranks, const Body& body, const ProcessOptions& options = {});
  ProcessJob(const ProcessJob&) = delete;
  ProcessJob& operator=(const ProcessJob&) = delete;
  ~ProcessJob();  // kills the remaining processes

  void send(int rank, int signal) const;
  [[nodiscard]] const std::string& rendezvous() const { return rendezvous_; }
  [[nodiscard]] std::vector<Ending> wait();  // waits for all

 private:
  std::chrono::seconds deadline_;
  std::string rendezvous_;
  std::vector<pid_t> pids_;
};

// All ranks must exit with 0.
void run_processes(int ranks, const ProcessJob::Body& body, const ProcessOptions& options = {});

// Returns when ready() is true; fails the test after a long time.
void wait_for(const std::function<bool()>& ready);

}  // namespace tnt::testing
