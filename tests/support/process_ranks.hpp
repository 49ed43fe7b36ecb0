// Ranks that are processes of their own: forked from the test, with the launcher's environment, reaped with a deadline.
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
  std::map<std::string, std::string> environment;  // beside, or instead of, what the launcher sets; "" for unset
  std::chrono::seconds deadline{50};               // then the children are killed and the test fails
};

struct Ending {
  int code = -1;   // exit code, or
  int signal = 0;  // what killed it
};

void* map_shared(std::size_t bytes);
void unmap_shared(void* memory, std::size_t bytes);

// Memory that the test and all its ranks see.
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

// Forks the ranks. No other thread may run then. body's process exits with code 0, or 1 if an expectation failed in it.
class ProcessJob {
 public:
  using Body = std::function<void(int rank)>;

  ProcessJob(int ranks, const Body& body, const ProcessOptions& options = {});
  ProcessJob(const ProcessJob&) = delete;
  ProcessJob& operator=(const ProcessJob&) = delete;
  ~ProcessJob();  // kills what is left

  void send(int rank, int signal) const;
  [[nodiscard]] const std::string& rendezvous() const { return rendezvous_; }
  [[nodiscard]] std::vector<Ending> wait();  // for all

 private:
  std::chrono::seconds deadline_;
  std::string rendezvous_;
  std::vector<pid_t> pids_;
};

// All ranks have to exit with 0.
void run_processes(int ranks, const ProcessJob::Body& body, const ProcessOptions& options = {});

// Returns when ready() is true; fails the test if it is not after a long time.
void wait_for(const std::function<bool()>& ready);

}  // namespace tnt::testing
