// The ranks of this host, from their start to their end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.hpp"
#include "run/exit_notices.hpp"
#include "run/line_output.hpp"
#include "run/options.hpp"
#include "run/rank_process.hpp"

namespace tnt::run {

class Job {
 public:
  explicit Job(const Options& options);

  // The exit code: 0, that of the rank that failed first, or 128 + the signal. With --keep-going: 0 if one rank ends well.
  [[nodiscard]] int run();

 private:
  struct Rank {
    std::unique_ptr<RankProcess> process;
    std::unique_ptr<LineOutput> output;
    std::unique_ptr<LineOutput> errors;
  };
  enum class Phase : std::uint8_t { running, failed, terminated, killed };

  void start();
  void wait(int milliseconds);
  void on_signals();
  void look_at_ranks();
  void end_phases();
  void pass_to(Phase phase, int signal);
  void finish();
  [[nodiscard]] bool fails() const;                  // because of a rank
  [[nodiscard]] std::string end_of(int rank) const;  // "rank 2 (pid 4711) was killed by SIGKILL"
  void say(const std::string& text);
  [[nodiscard]] int running() const;
  [[nodiscard]] Variables variables(int rank) const;

  const Options& options_;
  std::string rendezvous_;
  std::string token_;
  Sink output_{1};
  Sink errors_{2};
  std::vector<Rank> ranks_;
  ExitNotices notices_;
  FileDescriptor signals_;
  Phase phase_ = Phase::running;
  std::int64_t phase_ends_ns_ = 0;
  std::optional<int> failed_rank_;
  int interrupted_ = 0;
};

}  // namespace tnt::run
