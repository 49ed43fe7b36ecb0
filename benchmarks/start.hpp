// Starts the ranks of a benchmark: forked here, or by our launcher, mpirun or srun; and small collectives for their agreement.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {

enum class StartKind {
  alone,     // one rank: this process
  fork,      // this process forks the ranks
  launcher,  // this process is a rank that `tarantella` started
  mpirun,    // this process is a rank that mpirun, mpiexec or srun started
};

struct Start {
  StartKind kind = StartKind::alone;
  int rank = 0;
  int ranks = 1;
  std::string rendezvous{};
  std::string token{};
};

using GetEnvironment = std::function<const char*(const char*)>;

// Detects how this process was started. Throws Failure if --ranks contradicts it.
[[nodiscard]] Start find_start(const Options& options, const GetEnvironment& environment);

// A command line without --ranks and its value.
[[nodiscard]] std::vector<std::string> without_ranks(const std::vector<std::string>& arguments);

// Replaces this process by `mpirun -n N tnt-bench ...`, so that MPI can be measured, too. Returns the reason if there is no
// mpirun.
[[nodiscard]] std::string restart_under_mpirun(int ranks, const std::vector<std::string>& arguments);

// Forks start.ranks processes, runs body(start of the rank) in each, and returns the first non-zero exit code. A rank that
// fails ends the others.
[[nodiscard]] int run_forked(Start start, const std::function<int(const Start&)>& body);

// A rank that has joined: its communicator, and small collectives of the benchmark.
class Team {
 public:
  // Joins within 10 s, or throws Failure that names the missing ranks. Under mpirun, uses the transport of the first backend.
  Team(const Start& start, const Options& options);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] bool leads() const noexcept { return rank_ == 0; }
  [[nodiscard]] tnt_comm_t comm() const noexcept { return comm_; }

  void barrier() const;
  void maximum(std::vector<double>& values) const;  // elementwise over ranks, on every rank
  [[nodiscard]] double maximum(double value) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) const;
  [[nodiscard]] std::vector<std::uint64_t> gather(std::uint64_t value) const;
  [[nodiscard]] std::string first_text(const std::string& text) const;  // the first non-empty text, in rank order

 private:
  tnt_comm_t comm_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
};

// Throws Failure with the library's message unless status is TNT_SUCCESS.
void check(tnt_status_t status);

}  // namespace tnt::bench
