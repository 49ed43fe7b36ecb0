#include "benchmarks/tune.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "benchmarks/flags.hpp"
#include "benchmarks/options.hpp"
#include "benchmarks/parsing.hpp"
#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

constexpr double seconds_in_all = 26.0;
constexpr int max_rounds = 9;

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// Two ranks, all cores, and more ranks than cores on machines with few cores.
std::vector<int> usual_ranks(int cores) { return {2, std::clamp(cores, 4, max_ranks)}; }

std::vector<int> parse_ranks(const std::string& text) {
  std::set<int> ranks;
  for (const std::string& part : split(text)) ranks.insert(static_cast<int>(parse_whole("--ranks", part, 2, max_ranks)));
  if (ranks.size() > TuningTable::max_entries) {
    refuse("--ranks", text, fmt::format("more than {} numbers", TuningTable::max_entries));
  }
  return {ranks.begin(), ranks.end()};
}

void refuse_inside_a_job(const GetEnvironment& environment) {
  if (find_start({}, environment).kind == StartKind::alone) return;
  throw Failure("tune starts its own ranks: run it alone, not under the launcher, mpirun or srun", 2);
}

std::string described(const Tuning& tuning) {
  const std::string streaming =
      tuning.streaming_bytes == Tuning::never_streaming ? "never" : "from " + format_size(tuning.streaming_bytes);
  return fmt::format("LL up to {}, one-shot up to {}, streaming stores {}, chunks of {}",
                     tuning.ll_bytes == 0 ? "0" : format_size(tuning.ll_bytes), format_size(tuning.one_shot_bytes), streaming,
                     format_size(tuning.chunk_bytes));
}

void print_plan(const TuneOptions& options, std::FILE* out) {
  fmt::print(out, "ranks       {}\n", fmt::join(options.ranks, ", "));
  fmt::print(out, "file        {}\n", options.output);
  fmt::print(out, "time        {} s in all, or one round if that takes longer; at most {} rounds each\n", seconds_in_all,
             max_rounds);
  const std::size_t each = 2 * tune_pool_bytes() >> 20;
  fmt::print(out, "memory      {} MiB, {} a rank\n", each * static_cast<std::size_t>(options.ranks.back()), each);
  for (const Candidate& candidate : candidates_for(options.ranks.front())) {
    std::vector<std::string> sizes;
    for (const std::size_t size : candidate.sizes) sizes.push_back(format_size(size));
    fmt::print(out, "{:<12}{}\n", candidate.name, fmt::join(sizes, ", "));
  }
}

// With competition for cores, waits behave differently and other algorithms win.
void warn_if_busy(int cores) {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load < 0.5 * cores) return;
  fmt::print(stderr,
             "tnt-bench: tune: the load of this machine is {:.1f} on {} cores: tune again when it has nothing else to do\n",
             load, cores);
}

// Keeps the file's entries for other numbers of ranks.
TuningTable known_table(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  try {
    return TuningTable(text.str());
  } catch (const Failure& failure) {
    fmt::print(stderr, "tnt-bench: tune: {} is replaced: {}\n", path, failure.what());
    return {};
  }
}

struct OpenFile {
  OpenFile(const std::string& path, int flags) : descriptor(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
  const int descriptor;
};

void measure_and_write(const TuneOptions& options) {
  TuningTable table = known_table(options.output);
  for (std::size_t i = 0; i < options.ranks.size(); ++i) {
    const int ranks = options.ranks[i];
    const double seconds = seconds_in_all / static_cast<double>(options.ranks.size());
    const Rounds rounds = measure_candidates(candidates_for(ranks), ranks, seconds, max_rounds);
    const Tuning chosen = choose(rounds.medians);
    fmt::print("# {} ranks: microseconds, medians of {} rounds\n", ranks, rounds.rounds);
    print_times(rounds.medians, chosen, ranks, stdout);
    fmt::print("# {} ranks: {}{}\n\n", ranks, described(chosen), chosen == Tuning{} ? " (as by default)" : "");
    std::fflush(stdout);
    table.set(ranks, chosen);
  }
  write_file(options.output, table.text());
  fmt::print("written to {}\n", options.output);
}

}  // namespace

TuneOptions parse_tune(int argc, const char* const* argv, const GetEnvironment& environment, int cores) {
  const TuneFlags flags = read_tune_flags(argc, argv);
  TuneOptions options;
  options.dry_run = flags.dry_run;
  options.ranks = flags.ranks ? parse_ranks(*flags.ranks) : usual_ranks(cores);
  if (flags.output) check_file_name("-o", *flags.output);
  options.output = flags.output ? *flags.output : tnt_tuning_file();
  if (options.output.empty()) throw Failure("tune: neither XDG_CACHE_HOME nor HOME is set: say where with -o FILE", 2);
  refuse_inside_a_job(environment);
  return options;
}

void print_times(const Measured& measured, const Tuning& chosen, int ranks, std::FILE* out) {
  const std::vector<Candidate> candidates = candidates_for(ranks);
  std::set<std::size_t> sizes;
  fmt::print(out, "{:>8}", "size");
  for (const Candidate& candidate : candidates) {
    fmt::print(out, "{:>13}", candidate.name);
    sizes.insert(candidate.sizes.begin(), candidate.sizes.end());
  }
  fmt::print(out, "  choice\n");
  for (const std::size_t size : sizes) {
    fmt::print(out, "{:>8}", format_size(size));
    for (const Candidate& candidate : candidates) {
      const auto times = measured.find(candidate.name);
      const bool known = times != measured.end() && times->second.contains(size);
      fmt::print(out, "{:>13}", known ? fmt::format("{:.2f}", times->second.at(size)) : "-");
    }
    fmt::print(out, "  {}\n", algorithm_at(chosen, ranks, size));
  }
}

void write_file(const std::string& path, const std::string& text) {
  const auto fail_with = [&path](const char* what) {
    throw Failure(fmt::format("{}: {} ({}); say another file with -o FILE", path, what, std::strerror(errno)));
  };
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string aside = fmt::format("{}.{}", path, getpid());
  const OpenFile file(aside, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.descriptor < 0) fail_with("cannot be written");
  const bool written = write(file.descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || fsync(file.descriptor) != 0 || std::rename(aside.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    unlink(aside.c_str());
    errno = reason;
    fail_with("cannot be written");
  }
  const OpenFile directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.descriptor >= 0)
    (void)fsync(directory.descriptor);  // makes the new name survive a crash; ignored if it is not possible
}

int tune_main(int argc, const char* const* argv) {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  const TuneOptions options = parse_tune(argc, argv, environment, usable_cores());
  if (options.dry_run) {
    print_plan(options, stdout);
  } else {
    warn_if_busy(usable_cores());
    measure_and_write(options);
  }
  return 0;
}

}  // namespace tnt::bench
