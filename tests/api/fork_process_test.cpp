// Forks of a rank: refused by every function that communicates, and harmless to the job however they end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {
bool in_fork = false;
}

// The leak sanitizer asks this. In a fork, what a thread of the rank held at that moment belongs to nobody.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return in_fork ? 1 : 0; }

namespace {

using namespace tnt::testing;

// The wait status of a fork that runs the body, which ends the process.
int status_of_fork(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    in_fork = true;
    body();
    abort();
  }
  int status = -1;
  wait_for([&] { return waitpid(pid, &status, WNOHANG) == pid; });
  if (status == -1) kill(pid, SIGKILL);
  return status;
}

[[noreturn]] void leave_expecting_no_failure() { _exit(::testing::Test::HasFailure() ? 1 : 0); }

void expect_right_sums(const Joined& job) {
  std::vector<double> values(1000, job.rank + 1);
  EXPECT_EQ(tnt_all_reduce(job.world, values.data(), values.data(), values.size(), TNT_FLOAT64, TNT_SUM, nullptr, nullptr),
            TNT_SUCCESS)
      << tnt_last_error();
  EXPECT_EQ(values, std::vector<double>(1000, job.size * (job.size + 1) / 2.0));
}

const tnt_tensor_t tensors[] = {{"a", 1000, TNT_FLOAT64}, {"b", 10, TNT_FLOAT64}};

// All that a rank can have, after it was used.
struct Used {
  explicit Used(const Joined& job) {
    check(tnt_comm_split(job.world, 0, 0, &part));
    check(tnt_reducer_create(job.world, tensors, 2, nullptr, &reducer));
    for (std::size_t tensor : {0, 1}) check(tnt_reducer_ready(reducer, tensor, data.data(), data.data(), 1.0, nullptr));
    check(tnt_reducer_finish(reducer, nullptr));
    check(tnt_barrier(part, nullptr, &work));
    check(tnt_work_wait(work, -1));
    check(tnt_work_destroy(work));
    check(tnt_barrier(job.world, nullptr, &work));
    check(tnt_work_wait(work, -1));
    const int next = (job.rank + 1) % job.size;
    const int previous = (job.rank + job.size - 1) % job.size;
    tnt_work_t sent = nullptr;
    int number = 0;
    check(tnt_send(part, &job.rank, 1, TNT_INT32, next, nullptr, &sent));
    check(tnt_recv(part, &number, 1, TNT_INT32, previous, nullptr, nullptr));
    check(tnt_work_wait(sent, -1));
    check(tnt_work_destroy(sent));
  }
  void destroy() const {
    EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS) << tnt_last_error();
  }

  std::vector<double> data = std::vector<double>(1000, 1.0);
  tnt_comm_t part = nullptr;
  tnt_work_t work = nullptr;
  tnt_reducer_t reducer = nullptr;
};

void expect_refused(tnt_status_t status, int rank, pid_t process) {
  EXPECT_EQ(status, TNT_UNSUPPORTED);
  const std::string start = "process " + std::to_string(getpid()) + " is a fork of rank " + std::to_string(rank) +
                            " (process " + std::to_string(process) + ") and cannot communicate: ";
  EXPECT_EQ(std::string(tnt_last_error()).substr(0, start.size()), start);
}

void expect_everything_refused(const Joined& job, const Used& used, pid_t process) {
  double value = 5;
  int number = 0;
  std::size_t size = 0;
  tnt_work_t work = nullptr;
  tnt_comm_t comm = nullptr;
  tnt_reducer_t reducer = nullptr;
  const std::array members{job.rank};
  const tnt_dtype_t type = TNT_FLOAT64;
  const int peer = (job.rank + 1) % job.size;
  const tnt_status_t statuses[] = {
      tnt_init(nullptr),
      tnt_trace_span("track", "name", 0, 1),
      tnt_timeline_start("timeline"),
      tnt_timeline_stop(),
      tnt_progress(1, 2.0),
      tnt_comm_split(job.world, 0, 0, &comm),
      tnt_comm_create_group(job.world, members.data(), 1, 0, &comm),
      tnt_comm_grow(job.world, nullptr, job.size + 1, -1, &comm),
      tnt_comm_grow(nullptr, nullptr, 1, 0, &comm),
      tnt_comm_abort(job.world, "from a fork"),
      tnt_comm_check(job.world),
      tnt_all_reduce(job.world, &value, &value, 1, type, TNT_SUM, nullptr, nullptr),
      tnt_all_reduce(job.world, &value, &value, 1, type, TNT_SUM, nullptr, &work),
      tnt_reduce_scatter(job.world, &value, &value, 0, type, TNT_SUM, nullptr, nullptr),
      tnt_all_gather(job.world, &value, &value, 0, type, nullptr, nullptr),
      tnt_broadcast(job.world, &value, &value, 1, type, 0, nullptr, nullptr),
      tnt_all_to_all(job.world, &value, &value, 0, type, nullptr, nullptr),
      tnt_barrier(job.world, nullptr, nullptr),
      tnt_send(job.world, &value, 1, type, peer, nullptr, nullptr),
      tnt_recv(job.world, &value, 1, type, peer, nullptr, nullptr),
      tnt_group_start(),
      tnt_group_end(),
      tnt_work_wait(used.work, -1),
      tnt_work_wait_any(&used.work, 1, -1, &size),
      tnt_work_test(used.work, &number),
      tnt_reducer_create(job.world, tensors, 2, nullptr, &reducer),
      tnt_reducer_bucket_count(used.reducer, &size),
      tnt_reducer_set_hook(used.reducer, nullptr, nullptr),
      tnt_reducer_ready(used.reducer, 0, &value, &value, 1.0, nullptr),
      tnt_reducer_wait_bucket(used.reducer, 0, nullptr),
      tnt_reducer_finish(used.reducer, nullptr),
      tnt_reducer_check(used.reducer),
  };
  for (const tnt_status_t status : statuses) expect_refused(status, job.rank, process);
  EXPECT_EQ(number, 1) << "who asks until a work has finished must not ask for ever";
}

// What a fork may do: ask who it was, and give back what it has copies of.
void expect_queries_answered(const Joined& job) {
  tnt_comm_t world = nullptr;
  EXPECT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  EXPECT_EQ(world, job.world);
  int rank = -1;
  int size = -1;
  EXPECT_EQ(tnt_comm_rank(world, &rank), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_size(world, &size), TNT_SUCCESS);
  EXPECT_EQ(rank, job.rank);
  EXPECT_EQ(size, job.size);
  EXPECT_EQ(tnt_comm_local_rank(world, &rank), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_local_size(world, &size), TNT_SUCCESS);
  EXPECT_EQ(rank, job.rank);
  EXPECT_EQ(size, job.size);
  const char* transport = nullptr;
  EXPECT_EQ(tnt_comm_transport(world, &transport), TNT_SUCCESS);
  EXPECT_STREQ(transport, "shm");
}

int descriptors_of_shared_memory() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    found += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/memfd:tarantella") ? 1 : 0;
  }
  return found;
}

class ForkProcessTest : public ::testing::TestWithParam<int> {};

// The first collective of the job is the fork's: the memory that others read is then as if the rank had written it.
TEST_P(ForkProcessTest, BeforeTheFirstCollectiveIsRefused) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    if (rank == 1) {
      const pid_t process = getpid();
      const auto body = [&] {
        std::vector<double> values(1000, 5.0);
        expect_refused(tnt_all_reduce(job.world, values.data(), values.data(), 1000, TNT_FLOAT64, TNT_SUM, nullptr, nullptr), 1,
                       process);
        leave_expecting_no_failure();
      };
      EXPECT_EQ(status_of_fork(body), 0);
    }
    expect_right_sums(job);
  });
}

TEST_P(ForkProcessTest, CannotCommunicate) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    const Used used(job);
    if (rank == 1) {
      EXPECT_EQ(descriptors_of_shared_memory(), 1);
      const pid_t process = getpid();
      const auto body = [&] {
        expect_everything_refused(job, used, process);
        expect_queries_answered(job);
        EXPECT_EQ(descriptors_of_shared_memory(), 0);
        EXPECT_EQ(status_of_fork([&] {
                    expect_everything_refused(job, used, process);
                    leave_expecting_no_failure();
                  }),
                  0)
            << "a fork of a fork";
        used.destroy();
        used.destroy();
        EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
        leave_expecting_no_failure();
      };
      EXPECT_EQ(status_of_fork(body), 0);
    }
    expect_right_sums(job);
    used.destroy();
  });
}

struct Way {
  const char* name;
  void (*leave)();
  int status;  // of wait
};

class ForkEndTest : public ::testing::TestWithParam<Way> {};

// exit destroys static objects.
TEST_P(ForkEndTest, IsHarmless) {
  run_processes(3, [](int rank) {
    const Joined job;
    for (const bool everything : {false, true}) {
      std::vector<Used> used;
      if (everything) used.emplace_back(job);
      if (rank == 1) {
        EXPECT_EQ(status_of_fork(GetParam().leave), GetParam().status);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others look every 20 ms whether this rank has left
      }
      expect_right_sums(job);
      if (everything) used.back().destroy();
    }
  });
}

const Way ways[] = {{"Exit", [] { std::exit(0); }, 0},
                    {"ExitWithAnError", [] { std::exit(3); }, 3 << 8},
                    {"QuickExit", [] { _exit(0); }, 0},
                    {"FinalizeAndExit",
                     [] {
                       EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
                       std::exit(0);
                     },
                     0},
                    {"Killed", [] { raise(SIGKILL); }, SIGKILL},
                    {"Program", [] { execl("/bin/true", "true", nullptr); }, 0}};
INSTANTIATE_TEST_SUITE_P(Ways, ForkEndTest, ::testing::ValuesIn(ways), [](const auto& info) { return info.param.name; });

// A rank that has left is no rank: its forks may join a job.
TEST(ForkProcess, OfARankThatHasLeftIsANewProcess) {
  run_processes(2, [](int) {
    { const Joined job; }
    const auto body = [] {
      const tnt_init_options_t alone = TNT_INIT_OPTIONS_INITIALIZER;
      EXPECT_EQ(tnt_init(&alone), TNT_SUCCESS) << tnt_last_error();
      leave_expecting_no_failure();
    };
    EXPECT_EQ(status_of_fork(body), 0);
  });
}

// The fork lives longer than the job: nobody waits for it, and nobody takes it for the rank.
TEST(ForkProcess, MayOutliveTheRank) {
  Shared<std::atomic<int>> fork_of_rank;
  run_processes(3, [&](int rank) {
    const Joined job;
    if (rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        pause();
        _exit(0);
      }
      *fork_of_rank = child;  // by the rank alone: to the fork it is 0, and 0 would be this test's whole process group
      return;
    }
    EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_PEER_LOST) << tnt_last_error();
  });
  ASSERT_GT(*fork_of_rank, 0);
  EXPECT_EQ(kill(*fork_of_rank, SIGKILL), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ForkProcessTest, ::testing::ValuesIn(tnt::testing::some_of({2, 3}, {2, 3})));

}  // namespace
