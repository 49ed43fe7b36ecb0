// tnt-simulated: tnt-bench with --backend simulated, which starts it with the same arguments.
#include <fmt/core.h>
#include <smpi/smpi.h>
#include <xbt/log.h>

#include <string>

#include "benchmarks/options.hpp"
#include "benchmarks/plan.hpp"
#include "benchmarks/report.hpp"
#include "benchmarks/simulated/platform.hpp"
#include "benchmarks/simulated/simulated_run.hpp"

namespace tnt::bench {
namespace {

Header describe(const Options& options, const Platform& platform) {
  Header header;
  header.version = tnt_version();
  header.facts = {{"time", "simulated by SimGrid"},
                  {"platform", options.platform},
                  {"ranks", std::to_string(*options.ranks)},
                  {"nodes", std::to_string((*options.ranks - 1) / platform.ranks_per_node + 1)},
                  {"ranks per node", std::to_string(platform.ranks_per_node)}};
  return header;
}

// Which algorithms SMPI takes. In SimGrid 3.32 the table of MVAPICH2 crashes, so its algorithm for most sizes stands for it;
// the broadcasts of the other tables crash in MPI_Comm_dup, which is before their communicators exist.
void choose_algorithms(const std::string& library) {
  using simgrid::s4u::Engine;
  if (library == "mvapich2") return Engine::set_config("smpi/allreduce:mvapich2_rs");
  Engine::set_config("smpi/coll-selector:" + library);
  Engine::set_config("smpi/bcast:binomial_tree");
}

int simulate(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.platform.empty()) throw Failure("this program is started by tnt-bench --backend simulated", 2);
  if (options.dry_run) {
    print_plan(options, *options.ranks, stdout);
    return 0;
  }
  // Only real messages count, not the time that this machine takes to compute them. A poll that finds nothing takes no time.
  using simgrid::s4u::Engine;
  xbt_log_control_set("root.threshold:critical");
  smpi_init_options();
  char* nothing[] = {argv[0], nullptr};
  int one = 1;
  const Engine engine(&one, static_cast<char**>(nothing));
  Engine::set_config("smpi/simulate-computation:no");
  Engine::set_config("smpi/test:0");
  Engine::set_config("network/model:SMPI");
  if (options.against) choose_algorithms(*options.against);
  SMPI_init();
  const Platform platform = load_platform(engine, options.platform, *options.ranks);
  Report report(options);
  report.header(describe(options, platform));
  run_simulated(options, engine, platform, report);
}

int main(int argc, char** argv) {
  try {
    return simulate(argc, argv);
  } catch (const Failure& failure) {
    fmt::print(failure.code() == 0 ? stdout : stderr, "{}{}\n", failure.code() == 0 ? "" : "tnt-bench: ", failure.what());
    return failure.code();
  }
}

}  // namespace
}  // namespace tnt::bench

int main(int argc, char** argv) { return tnt::bench::main(argc, argv); }
