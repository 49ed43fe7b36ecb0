#include "run/job.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "launch/local_socket.hpp"

namespace tnt::run {
namespace {

constexpr int interval_ms = 100;
constexpr std::int64_t ns_per_ms = 1'000'000;
constexpr std::int64_t own_end_ms = 2000;      // for the other ranks to notice and to say why
constexpr std::int64_t termination_ms = 3000;  // after SIGTERM
constexpr std::int64_t last_output_ms = 200;   // of processes that ranks have left behind

FileDescriptor open_signals() {
  sigset_t set;
  (void)::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) (void)::sigaddset(&set, number);
  (void)::sigprocmask(SIG_BLOCK, &set, nullptr);
  (void)::signal(SIGPIPE, SIG_IGN);
  FileDescriptor signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw Exit(1, fmt::format("tnt-run: cannot take signals: {}\n", std::strerror(errno)));
  return signals;
}

}  // namespace

Job::Job(const Options& options)
    : options_(options),
      rendezvous_("tnt-run-" + random_name()),
      token_(random_name()),
      notices_(rendezvous_, token_),
      signals_(open_signals()) {}

int Job::run() {
  adopt_orphans();
  start();
  while (running() > 0) {
    wait(interval_ms);
    on_signals();
    look_at_ranks();
    notices_.deliver();
    end_phases();
  }
  finish();
  if (interrupted_ != 0) return 128 + interrupted_;
  if (fails()) return ranks_[static_cast<std::size_t>(*failed_rank_)].process->ended()->exit_code();
  return output_.lost() ? 1 : 0;
}

bool Job::fails() const {
  if (!failed_rank_ || !options_.keep_going) return failed_rank_.has_value();
  return std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.process->ended()->well(); });
}

std::string Job::end_of(int rank) const {
  const RankProcess& process = *ranks_[static_cast<std::size_t>(rank)].process;
  return fmt::format("rank {} (pid {}) {}", rank, process.pid(), process.ended()->text());
}

Variables Job::variables(int rank) const {
  return {{"TNT_RANK", std::to_string(rank)},       {"TNT_SIZE", std::to_string(options_.ranks)},
          {"TNT_LOCAL_RANK", std::to_string(rank)}, {"TNT_LOCAL_SIZE", std::to_string(options_.ranks)},
          {"TNT_RENDEZVOUS", rendezvous_},          {"TNT_TOKEN", token_}};
}

void Job::start() {
  const bool prefix = options_.prefix && options_.ranks > 1;
  const bool terminal = ::isatty(STDIN_FILENO) != 0;  // of which a session of its own reads nothing
  try {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      Rank& one = ranks_.emplace_back();
      one.process = std::make_unique<RankProcess>(options_.command, variables(rank), rank == 0 && !terminal);
      const std::string before = prefix ? fmt::format("[rank {}] ", rank) : "";
      one.output = std::make_unique<LineOutput>(std::move(one.process->output()), before, output_);
      one.errors = std::make_unique<LineOutput>(std::move(one.process->errors()), before, errors_);
    }
  } catch (...) {
    (void)kill_descendants();
    throw;
  }
}

int Job::running() const {
  return static_cast<int>(std::ranges::count_if(ranks_, [](const Rank& rank) { return !rank.process->ended(); }));
}

void Job::wait(int milliseconds) {
  std::vector<pollfd> waits{{signals_.get(), POLLIN, 0}};
  std::vector<LineOutput*> outputs;
  for (const Rank& rank : ranks_) {
    for (LineOutput* output : {rank.output.get(), rank.errors.get()}) {
      if (!output->open()) continue;
      waits.push_back({output->descriptor(), POLLIN, 0});
      outputs.push_back(output);
    }
  }
  (void)::poll(waits.data(), waits.size(), milliseconds);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (waits[i + 1].revents != 0) outputs[i]->pump();
  }
}

void Job::on_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    if (interrupted_ != 0) {  // asked again: do not wait any longer
      pass_to(Phase::killed, SIGKILL);
      continue;
    }
    interrupted_ = number;
    say(fmt::format("interrupted by {}; ending {} rank{}", signal_name(number), running(), running() == 1 ? "" : "s"));
    pass_to(Phase::terminated, SIGTERM);
  }
}

// A rank that was killed is the cause where several have failed since the last look.
void Job::look_at_ranks() {
  std::optional<int> failed;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RankProcess& process = *ranks_[static_cast<std::size_t>(rank)].process;
    if (process.ended() || !process.has_ended()) continue;
    if (process.ended()->well() || options_.keep_going) notices_.on_exit(rank, process.ended()->exit_code());
    if (process.ended()->well()) continue;
    if (options_.keep_going && interrupted_ == 0) {
      say(end_of(rank) + (running() > 0 ? "; the others go on" : ""));
    }
    if (!failed || (process.ended()->signal != 0 && ranks_[static_cast<std::size_t>(*failed)].process->ended()->signal == 0)) {
      failed = rank;
    }
  }
  if (!failed || failed_rank_) return;
  failed_rank_ = failed;
  if (phase_ != Phase::running || options_.keep_going) return;
  phase_ = Phase::failed;
  phase_ends_ns_ = now_ns() + own_end_ms * ns_per_ms;
}

void Job::end_phases() {
  if (phase_ == Phase::running || phase_ == Phase::killed || now_ns() < phase_ends_ns_) return;
  if (phase_ == Phase::failed) return pass_to(Phase::terminated, SIGTERM);
  pass_to(Phase::killed, SIGKILL);
}

void Job::pass_to(Phase phase, int signal) {
  phase_ = phase;
  phase_ends_ns_ = now_ns() + termination_ms * ns_per_ms;
  for (const Rank& rank : ranks_) {
    if (rank.process->ended()) continue;
    rank.process->send(signal);
    rank.process->send(SIGCONT);  // one that is stopped takes it now
  }
}

// The last output, the processes that ranks have left behind, and what there is to say.
void Job::finish() {
  const std::int64_t deadline = now_ns() + last_output_ms * ns_per_ms;
  const auto open = [](const Rank& rank) { return rank.output->open() || rank.errors->open(); };
  while (now_ns() < deadline && std::ranges::any_of(ranks_, open)) wait(10);
  for (const Rank& rank : ranks_) rank.process->send(SIGKILL);  // its group
  if (failed_rank_ || interrupted_ != 0) (void)kill_descendants();
  for (const Rank& rank : ranks_) {
    rank.output->pump();
    rank.errors->pump();
    rank.output->close();
    rank.errors->close();
    rank.process->reap();
  }
  if (failed_rank_ && interrupted_ == 0 && !options_.keep_going) {
    say(end_of(*failed_rank_) + (options_.ranks == 1   ? ""
                                 : options_.ranks == 2 ? "; the other rank has ended"
                                                       : "; the other ranks have ended"));
  }
  if (output_.lost()) {
    say(fmt::format("cannot write to standard output: {}; what was to come there is lost", std::strerror(output_.error())));
  }
}

void Job::say(const std::string& text) { errors_.write(fmt::format("tnt-run: {}\n", text)); }

}  // namespace tnt::run
