#include "benchmarks/tune_run.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/file_descriptor.hpp"
#include "benchmarks/environment.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/statistics.hpp"

namespace tnt::bench {
namespace {

constexpr double seconds_per_size = 0.02;
constexpr double timeout = 20.0;  // seconds for any wait of a rank
constexpr std::size_t pool = std::size_t{32} << 20;
constexpr std::size_t small = Tuning::most_at_once;  // up to here the same buffers are used each time

// Memory that this process and those it forks share; untouched pages cost nothing.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes)
      : bytes_(bytes), memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw Failure(fmt::format("tune: no memory for {} bytes of buffers", bytes));
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(memory_);
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

// A tuning that TNT_TUNING can name, without a name in the file system: whatever ends us, nothing is left.
class TuningFile {
 public:
  explicit TuningFile(const Tuning& tuning) : file_(memfd_create("tuning", MFD_CLOEXEC)) {
    TuningTable table;
    table.set_default(tuning);
    const std::string text = table.to_json("a candidate of tnt-bench tune");
    if (!file_ || write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw Failure("tune: cannot write a candidate's tuning into memory");
    }
  }
  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }

 private:
  FileDescriptor file_;
};

void check_room(int ranks) {
  const std::size_t needed = 2 * pool * static_cast<std::size_t>(ranks);
  if (needed <= available_memory()) return;
  throw Failure(fmt::format("tune with {} ranks needs {} MiB of memory, this machine has {}: say fewer --ranks", ranks,
                            needed >> 20, available_memory() >> 20),
                2);
}

// One rank's buffers in a job: of large sizes the next one each time.
class Buffers {
 public:
  Buffers(std::byte* memory, std::size_t size) : memory_(memory), size_(size), count_(size > small ? pool / size : 1) {}
  void operate(const Team& team) {
    std::byte* const in = memory_ + turn_++ % count_ * size_;
    check(tnt_all_reduce(team.comm(), in, in + pool, size_ / sizeof(float), TNT_FLOAT32, TNT_SUM, nullptr, nullptr));
  }

 private:
  std::byte* memory_;
  std::size_t size_;
  std::size_t count_;
  std::size_t turn_ = 0;
};

// Every page once, in the process that will use it: the first use of each is a page fault, longer than what is measured.
void touch(std::byte* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    volatile auto* const number = reinterpret_cast<float*>(memory + at);
    *number = 1.0F;
  }
}

// The ranks' part: every size's median goes to medians, from rank 0.
int be_rank(const Start& start, const Candidate& candidate, const std::string& tuning, std::byte* memory, double* medians) {
  try {
    setenv("TNT_TUNING", tuning.c_str(), 1);
    std::byte* const own = memory + 2 * pool * static_cast<std::size_t>(start.rank);
    const std::size_t used = candidate.sizes.back() > small ? pool : candidate.sizes.back();
    touch(own, used);
    touch(own + pool, used);
    // as many as the choice of stores needs to know its mind
    const Options options{.warmup = 10, .target = 0.03, .max_time = seconds_per_size, .timeout = timeout};
    const Team team(start, options);
    for (std::size_t i = 0; i < candidate.sizes.size(); ++i) {
      Buffers buffers(own, candidate.sizes[i]);
      const auto times = measure({[&] { buffers.operate(team); }}, options, team);
      if (team.leads()) medians[i] = times.front().p50;
    }
    return 0;
  } catch (const Failure& failure) {
    if (start.rank == 0) fmt::print(stderr, "tnt-bench: tune: {}\n", failure.what());
    return 1;
  }
}

}  // namespace

std::size_t tune_pool_bytes() noexcept { return pool; }

Rounds measure_candidates(const std::vector<Candidate>& candidates, int ranks, double seconds, int most_rounds) {
  check_room(ranks);
  const SharedMemory memory(2 * pool * static_cast<std::size_t>(ranks));
  std::fill_n(memory.as<float>(), 2 * pool * static_cast<std::size_t>(ranks) / sizeof(float), 1.0F);
  std::size_t most_sizes = 0;
  for (const Candidate& candidate : candidates) most_sizes = std::max(most_sizes, candidate.sizes.size());
  const SharedMemory medians(most_sizes * sizeof(double));
  const auto nothing = [](const char*) -> const char* { return nullptr; };

  const std::int64_t begin = tnt_clock_ns();
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> all;
  Rounds result;
  double elapsed = 0;
  // not begun if it would end too late
  while (result.rounds == 0 || (result.rounds < most_rounds && elapsed * (result.rounds + 1) / result.rounds <= seconds)) {
    for (const Candidate& candidate : candidates) {
      const TuningFile file(candidate.tuning);
      const int code = run_forked(find_start(Options{.ranks = ranks}, nothing), [&](const Start& start) {
        return be_rank(start, candidate, file.path(), memory.as<std::byte>(), medians.as<double>());
      });
      if (code != 0) throw Failure(fmt::format("tune: the measurement with {} ranks failed", ranks));
      for (std::size_t i = 0; i < candidate.sizes.size(); ++i) {
        all[{candidate.name, candidate.sizes[i]}].push_back(medians.as<double>()[i]);
      }
    }
    ++result.rounds;
    elapsed = static_cast<double>(tnt_clock_ns() - begin) * 1e-9;
  }
  for (auto& [key, times] : all) {
    std::sort(times.begin(), times.end());
    result.medians[key.first][key.second] = median(times);
  }
  return result;
}

}  // namespace tnt::bench
