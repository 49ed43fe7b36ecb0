#include "support/process_ranks.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

namespace tnt::testing {
namespace {

void set_environment(int rank, int ranks, const std::string& rendezvous, const ProcessOptions& options) {
  std::map<std::string, std::string> all{{"TNT_RANK", std::to_string(rank)},
                                         {"TNT_SIZE", std::to_string(ranks)},
                                         {"TNT_RENDEZVOUS", rendezvous},
                                         {"TNT_TOKEN", "token-of-" + rendezvous},
                                         {"TNT_TIMEOUT", "60"}};
  for (const auto& [name, value] : options.environment) all[name] = value;
  for (const auto& [name, value] : all) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
}

[[noreturn]] void be_rank(int rank, const ProcessJob::Body& body) {
  int code = 0;
  try {
    body(rank);
    code = ::testing::Test::HasFailure() ? 1 : 0;
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = 1;
  }
  (void)std::fflush(nullptr);
  _exit(code);
}

}  // namespace

void* map_shared(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void unmap_shared(void* memory, std::size_t bytes) { munmap(memory, bytes); }

ProcessJob::ProcessJob(int ranks, const Body& body, const ProcessOptions& options)
    : deadline_(options.deadline), rendezvous_("tnt-test-" + std::to_string(std::random_device()())) {
  (void)std::fflush(nullptr);  // so that buffered output is printed once
  const pid_t parent = getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      set_environment(rank, ranks, rendezvous_, options);
      be_rank(rank, body);
    }
    pids_.push_back(pid);
  }
}

ProcessJob::~ProcessJob() {
  for (const pid_t pid : pids_) {
    if (pid == 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void ProcessJob::send(int rank, int signal) const { EXPECT_EQ(kill(pids_[static_cast<std::size_t>(rank)], signal), 0); }

std::vector<Ending> ProcessJob::wait() {
  const auto end = std::chrono::steady_clock::now() + deadline_;
  std::vector<Ending> endings(pids_.size());
  for (std::size_t left = pids_.size(); left > 0;) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      --left;
      endings[rank] = WIFSIGNALED(status) ? Ending{-1, WTERMSIG(status)} : Ending{WEXITSTATUS(status), 0};
    }
    if (left > 0 && std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << left << " of " << pids_.size() << " ranks still ran at the deadline";
      break;  // the destructor kills them
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return endings;
}

void run_processes(int ranks, const ProcessJob::Body& body, const ProcessOptions& options) {
  ProcessJob job(ranks, body, options);
  const std::vector<Ending> endings = job.wait();
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    EXPECT_EQ(endings[rank].code, 0) << "rank " << rank << ", signal " << endings[rank].signal;
  }
}

void wait_for(const std::function<bool()>& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "waited too long";
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tnt::testing
