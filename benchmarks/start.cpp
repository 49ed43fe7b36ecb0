#include "benchmarks/start.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

namespace tnt::bench {
namespace {

constexpr double join_seconds = 10.0;

int number(const char* text) { return text == nullptr ? 0 : std::atoi(text); }

// The variables in which each launcher gives rank and size.
struct Starter {
  const char* rank;
  const char* ranks;
};
constexpr std::array<Starter, 4> starters{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", "PMIX_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
}};

std::string random_name() {
  std::random_device random;
  return fmt::format("tnt-bench-{:08x}{:08x}", random(), random());
}

// Waits for all ranks. After one has failed, the library tells the others; a rank that does not end within 3 s is killed.
int reap(std::vector<pid_t> ranks) {
  int result = 0;
  int tries = 300;
  while (std::any_of(ranks.begin(), ranks.end(), [](pid_t pid) { return pid != 0; })) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, result == 0 ? 0 : WNOHANG);
    if (ended < 0 && errno != EINTR) break;
    if (ended <= 0) {
      if (--tries == 0) {
        for (const pid_t rank : ranks) {
          if (rank != 0) kill(rank, SIGKILL);
        }
      }
      usleep(10'000);
      continue;
    }
    const auto rank = std::find(ranks.begin(), ranks.end(), ended);
    if (rank != ranks.end()) *rank = 0;
    if (result != 0 || status == 0) continue;
    result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status)) {
      fmt::print(stderr, "tnt-bench: rank {} was killed by {}\n", rank - ranks.begin(), strsignal(WTERMSIG(status)));
    }
  }
  return result;
}

std::optional<Start> from_starter(const Starter& starter, const GetEnvironment& environment) {
  if (environment(starter.rank) == nullptr || environment(starter.ranks) == nullptr) return std::nullopt;
  Start start{
      .kind = StartKind::mpirun, .rank = number(environment(starter.rank)), .ranks = number(environment(starter.ranks))};
  if (start.ranks < 2) return std::nullopt;
  return start;  // the library finds out where and how the ranks connect
}

}  // namespace

Start find_start(const Options& options, const GetEnvironment& environment) {
  Start start;
  if (environment("TNT_SIZE") != nullptr) {
    start = {.kind = StartKind::launcher, .rank = number(environment("TNT_RANK")), .ranks = number(environment("TNT_SIZE"))};
    if (const char* name = environment("TNT_RENDEZVOUS"); name != nullptr) start.rendezvous = name;
    if (const char* token = environment("TNT_TOKEN"); token != nullptr) start.token = token;
  } else {
    for (const Starter& starter : starters) {
      if (auto found = from_starter(starter, environment)) {
        start = *found;
        break;
      }
    }
  }
  if (start.kind != StartKind::alone) {
    if (options.ranks && *options.ranks != start.ranks) {
      throw Failure(fmt::format("--ranks {}: this process is one of {} that were started already; leave --ranks out",
                                *options.ranks, start.ranks),
                    2);
    }
    return start;
  }
  if (options.ranks.value_or(1) > 1) {
    start.kind = StartKind::fork;
    start.ranks = *options.ranks;
    start.rendezvous = random_name();
    start.token = random_name();
  }
  return start;
}

std::vector<std::string> without_ranks(const std::vector<std::string>& arguments) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--ranks") {
      ++i;  // and its value
    } else if (!arguments[i].starts_with("--ranks=")) {
      rest.push_back(arguments[i]);
    }
  }
  return rest;
}

std::string restart_under_mpirun(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks)};
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);  // unbound, like the ranks that we fork
  // Open MPI rejects root and more ranks than cores without these; MPICH's mpirun ignores them
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length <= 0) return "this program's own file cannot be found";
  words.emplace_back(self.data(), static_cast<std::size_t>(length));
  for (std::string& argument : without_ranks(arguments)) words.push_back(std::move(argument));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return fmt::format("mpirun cannot be started ({})", std::strerror(errno));
}

int run_forked(Start start, const std::function<int(const Start&)>& body) {
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int rank = 0; rank < start.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw Failure(fmt::format("cannot fork rank {}: {}", rank, std::strerror(errno)));
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      start.rank = rank;
      const int code = body(start);
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  return reap(children);
}

void check(tnt_status_t status) {
  if (status != TNT_SUCCESS) throw Failure(tnt_last_error());
}

Team::Team(const Start& start, const Options& bench_options) {
  setenv("TNT_TIMEOUT", fmt::format("{}", bench_options.timeout).c_str(), 1);
  tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
  options.rank = start.rank;
  options.ranks = start.ranks;
  options.rendezvous = start.rendezvous.c_str();
  options.token = start.token.c_str();
  options.join_timeout = join_seconds;
  const std::string& transport = bench_options.backends.front();
  if (start.kind == StartKind::mpirun && (transport.starts_with("mpi") || transport == "hierarchical" || transport == "shm")) {
    setenv("TNT_TRANSPORT", transport.c_str(), 1);
  }
  check(tnt_init(start.kind == StartKind::mpirun ? nullptr : &options));
  check(tnt_comm_world(&comm_));
  check(tnt_comm_rank(comm_, &rank_));
  check(tnt_comm_size(comm_, &ranks_));
}

Team::~Team() { tnt_finalize(); }

void Team::barrier() const { check(tnt_barrier(comm_, nullptr, nullptr)); }

void Team::maximum(std::vector<double>& values) const {
  check(tnt_all_reduce(comm_, values.data(), values.data(), values.size(), TNT_FLOAT64, TNT_MAX, nullptr, nullptr));
}

double Team::maximum(double value) const {
  std::vector<double> values{value};
  maximum(values);
  return values[0];
}

std::uint64_t Team::sum(std::uint64_t value) const {
  check(tnt_all_reduce(comm_, &value, &value, 1, TNT_INT64, TNT_SUM, nullptr, nullptr));
  return value;
}

std::vector<std::uint64_t> Team::gather(std::uint64_t value) const {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks_));
  check(tnt_all_gather(comm_, &value, all.data(), 1, TNT_INT64, nullptr, nullptr));
  return all;
}

std::string Team::first_text(const std::string& text) const {
  constexpr std::size_t length = 512;
  std::string own = text.substr(0, length);
  own.resize(length, '\0');
  std::string all(length * static_cast<std::size_t>(ranks_), '\0');
  check(tnt_all_gather(comm_, own.data(), all.data(), length, TNT_UINT8, nullptr, nullptr));
  for (std::size_t at = 0; at < all.size(); at += length) {
    if (all[at] != '\0') return {all.data() + at};
  }
  return "";
}

}  // namespace tnt::bench
