// tnt-bench: the speed of collectives on this machine, beside the limit of its memory and beside other libraries.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/backend.hpp"
#include "benchmarks/compare.hpp"
#include "benchmarks/environment.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/options.hpp"
#include "benchmarks/plan.hpp"
#include "benchmarks/report.hpp"
#include "benchmarks/runs.hpp"
#include "benchmarks/start.hpp"
#include "benchmarks/tune.hpp"

namespace tnt::bench {
namespace {

constexpr const char* restarted = "BENCH_STARTED_BY_MPIRUN";

void say(const std::string& line) { fmt::print(stderr, "tnt-bench: {}\n", line); }

// The requested backends that are available. Prints the reason for each one that is not; it is an error if none is.
Backends open_backends(const Options& options, const Team& team) {
  Backends backends;
  std::string reasons;
  for (const std::string& name : options.backends) {
    OpenedBackend found = open_tarantella(name, team);
    if (found.backend) {
      backends.tarantella.push_back(std::move(found.backend));
      continue;
    }
    reasons += fmt::format("{}backend {} is {}", reasons.empty() ? "" : "; ", name, found.reason);
  }
  if (backends.tarantella.empty()) throw Failure(reasons);
  if (!reasons.empty() && team.leads()) say(reasons + "; skipped");
  if (options.against) {
    OpenedBackend found = open_reference(*options.against, team);
    if (!found.backend && team.leads()) say(fmt::format("--against {} is skipped: {}", *options.against, found.reason));
    backends.reference = std::move(found.backend);
  }
  if (options.limit_gbps) {
    backends.bytes_per_second = *options.limit_gbps * 1e9;
  } else if (options.measure_limit) {
    backends.bytes_per_second = measure_bandwidth(team);
  }
  return backends;
}

int run(const Options& options, const Start& start) {
  try {
    const Team team(start, options);
    Backends backends = open_backends(options, team);
    Report report(options, team.leads());
    if (team.leads()) report.header(describe_machine(options, team, backends));
    int failures = 0;
    switch (options.collective) {
      case Collective::bucket: failures = run_bucket(options, team, backends, report); break;
      case Collective::overlap: failures = run_overlap(options, team, backends, report); break;
      default: failures = run_collective(options, team, backends, report);
    }
    if (team.leads()) report.footer();
    backends.reference.reset();  // MPI must end before the library
    return failures == 0 ? 0 : 1;
  } catch (const Failure& failure) {
    if (start.rank == 0 || start.kind == StartKind::launcher) say(failure.what());
    return failure.code();
  }
}

// Ranks that use MPI or are measured beside it must be started by its mpirun.
bool needs_mpi(const Options& options) {
  const auto over_mpi = [](const std::string& backend) { return backend.starts_with("mpi") || backend == "hierarchical"; };
  return options.against == "mpi" || std::any_of(options.backends.begin(), options.backends.end(), over_mpi);
}

// SimGrid is in a program of its own, which takes the same command line. Returns only if it cannot be started.
void become_simulation(char** argv) {
  const std::string here = beside_this_program("tnt-simulated");
  const std::string program =
      access(here.c_str(), X_OK) == 0 ? here : beside_this_program(TNT_PROGRAM_TO_PEERS "/tnt-simulated");
  execv(program.c_str(), argv);
  throw Failure(
      "--backend simulated: built without SimGrid: install it (Debian: libsimgrid-dev) and build with -DTNT_SIMGRID=ON", 2);
}

int measure_main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!options.platform.empty()) become_simulation(argv);
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  Start start = find_start(options, environment);
  check_ranks(options, start.ranks);
  check_memory(options, start.ranks, available_memory());
  if (options.dry_run) {
    print_plan(options, start.ranks, stdout);
    return 0;
  }
  if (start.kind == StartKind::fork && needs_mpi(options) && std::getenv(restarted) == nullptr) {
    setenv(restarted, "1", 1);
    say(restart_under_mpirun(start.ranks, {argv + 1, argv + argc}) + ": nothing is measured over MPI");
  }
  if (start.kind == StartKind::fork) {
    return run_forked(start, [&](const Start& rank) { return run(options, rank); });
  }
  return run(options, start);
}

// Plotting is done in Python (matplotlib). An installation of the C library alone has no Python package.
constexpr const char* plot_program = R"(
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in the working directory
try:
    from tarantella.bench.__main__ import main
except ModuleNotFoundError as error:
    if error.name not in ("tarantella", "tarantella.bench"):
        raise
    print(f"tnt-bench plot: needs the Python package: install tarantella for {sys.executable}, or plot where it is installed",
          file=sys.stderr)
    sys.exit(2)
sys.exit(main())
)";

int plot(int argc, char** argv) {
  std::vector<char*> words{const_cast<char*>("python3"), const_cast<char*>("-c"), const_cast<char*>(plot_program)};
  const std::string python = beside_this_program("../../../../../bin/python3");  // of our environment
  if (access(python.c_str(), X_OK) == 0) words[0] = const_cast<char*>(python.c_str());
  for (int i = 1; i < argc; ++i) words.push_back(argv[i]);
  words.push_back(nullptr);
  execvp(words[0], words.data());
  throw Failure("cannot start python3 for the plot");
}

int main(int argc, char** argv) {
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "compare") return compare_main(argc - 1, argv + 1);
    if (first == "tune") return tune_main(argc - 1, argv + 1);
    if (first == "plot") return plot(argc, argv);
    return measure_main(argc, argv);
  } catch (const Failure& failure) {
    if (failure.code() == 0) {  // --help and --version
      fmt::print("{}\n", failure.what());
    } else {
      say(failure.what());
    }
    return failure.code();
  }
}

}  // namespace
}  // namespace tnt::bench

int main(int argc, char** argv) { return tnt::bench::main(argc, argv); }
