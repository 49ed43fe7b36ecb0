#include "run/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

namespace tnt::run {
namespace {

constexpr const char* about =
    "Starts the ranks of a program that uses Tarantella's C library.\n"
    "\n"
    "  tnt-run -n 4 -- ./train --epochs 3\n"
    "\n"
    "On this host, tnt-run shows the output of all ranks by lines, passes signals on, names the rank\n"
    "that failed, and leaves no process behind. On several hosts it becomes mpirun or srun.\n"
    "Programs in Python have more options with `tarantella`.";

constexpr int max_ranks_of_job = 1 << 20;
constexpr std::array<std::string_view, 7> options_with_value{"-n",      "-np",        "--np",    "--ranks",
                                                             "--hosts", "--hostfile", "--mpirun"};

// The command line in CLI11's order, the last word first. mpirun's -np, which CLI11 would read as -n p, becomes --np.
std::vector<std::string> words(int argc, const char* const* argv) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < all.size() && all[i].starts_with('-') && all[i] != "--"; ++i) {
    const bool has_value = std::ranges::find(options_with_value, all[i]) != options_with_value.end();
    if (all[i] == "-np") all[i] = "--np";
    if (has_value) ++i;
  }
  std::ranges::reverse(all);
  return all;
}

int parse_ranks(const std::string& text) {
  int ranks = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ranks);
  if (error == std::errc() && stop == end && ranks >= 1 && ranks <= max_ranks_of_job) return ranks;
  throw Exit(2, fmt::format("tnt-run: -n {}: expected a whole number from 1 to {}\n", text, max_ranks_of_job));
}

}  // namespace

Options read_options(int argc, const char* const* argv) {
  Options options;
  std::string ranks;
  std::string hostfile;
  std::string hosts;
  CLI::App app(about, "tnt-run");
  app.set_version_flag("--version", "tnt-run " TNT_RUN_VERSION);
  app.add_option("-n,--np,--ranks", ranks, "how many ranks; default: one for each slot of the hosts");
  app.add_option("--hosts", hosts, "node1:4,node2:4: the hosts, with their slots");
  app.add_option("--hostfile", hostfile, "a file with a host in each line: node1, node1:4 or node1 slots=4");
  app.add_option("--mpirun", options.mpirun,
                 "the command that starts the ranks, with options of its own; for several hosts: mpirun");
  app.add_flag("--srun", options.srun, "become srun instead, inside of an allocation of Slurm's");
  app.add_flag("!--no-prefix", options.prefix, "show lines as they are, without [rank N] before them");
  app.add_flag("--keep-going", options.keep_going,
               "if a rank fails, do not end the others: for programs that go on without it (TNT_ERRORS_RETURN)");
  app.add_flag("--dry-run", options.dry_run, "print what would be started");
  app.prefix_command();  // what begins with the program's name is the program's, also without --
  try {
    app.parse(words(argc, argv));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = app.exit(error, out, err);
    if (code == 0) throw Exit(0, out.str());
    throw Exit(2, fmt::format("tnt-run: {} (see tnt-run --help)\n", error.what()));
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
  if (!options.command.empty() && options.command.front().starts_with('-')) {
    throw Exit(2, fmt::format("tnt-run: unknown option {} (see tnt-run --help)\n", options.command.front()));
  }
  if (options.command.empty()) throw Exit(2, "tnt-run: no program: tnt-run -n 4 -- PROGRAM (see tnt-run --help)\n");
  if (!hosts.empty() && !hostfile.empty()) throw Exit(2, "tnt-run: --hosts and --hostfile are both given: use one\n");
  try {
    if (!hosts.empty()) options.hosts = parse_host_list(hosts);
    if (!hostfile.empty()) options.hosts = read_hostfile(hostfile);
  } catch (const std::runtime_error& error) {
    throw Exit(2, fmt::format("tnt-run: {}\n", error.what()));
  }
  if (!ranks.empty()) options.ranks = parse_ranks(ranks);
  const int slots = count_slots(options.hosts);
  if (ranks.empty()) options.ranks = slots;
  if (options.ranks == 0) throw Exit(2, "tnt-run: how many ranks? Say -n N, or name hosts\n");
  if (!options.hosts.empty() && options.ranks > slots) {
    throw Exit(2, fmt::format("tnt-run: -n {} is more than the {} slots of the hosts: give them more (node1:8)\n",
                              options.ranks, slots));
  }
  options.hosts = take_slots(options.hosts, options.ranks);
  return options;
}

}  // namespace tnt::run
