// tnt-run: starts the ranks of a program in C or C++, as `tarantella` starts those of a script.
#include <fmt/core.h>

#include <cstdio>

#include "comm/shm/max_ranks.hpp"
#include "run/hand_over.hpp"
#include "run/job.hpp"
#include "run/options.hpp"
#include "run/supervisor.hpp"

int main(int argc, char** argv) {
  using namespace tnt::run;
  try {
    const Options options = read_options(argc, argv);
    const bool elsewhere = options.srun || !options.mpirun.empty() || !are_here(options.hosts);
    if (elsewhere && options.keep_going) {
      throw Exit(2, "tnt-run: --keep-going is for ranks on this host: mpirun and srun end the job when a rank fails\n");
    }
    if (elsewhere) {
      const auto command = starter_command(options, passed_on());
      if (!options.dry_run) become(command);
      fmt::print("{}\n", quoted(command));
      return 0;
    }
    if (options.ranks > tnt::max_ranks) {
      throw Exit(2, fmt::format("tnt-run: -n {}: one host can have {} ranks at most\n", options.ranks, tnt::max_ranks));
    }
    if (options.dry_run) {
      fmt::print("{} ranks on this host: {}\n", options.ranks, quoted(options.command));
      return 0;
    }
    split();
    return Job(options).run();
  } catch (const Exit& exit) {
    std::fputs(exit.what(), exit.code() == 0 ? stdout : stderr);
    return exit.code();
  }
}
