#include "benchmarks/tune.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "benchmarks/environment.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/statistics.hpp"

namespace tnt::bench {
namespace {

constexpr double seconds_per_size = 0.02;
constexpr double timeout = 20.0;  // seconds for any wait of a rank
constexpr std::size_t pool = std::size_t{32} << 20;
constexpr std::size_t gap = 128;  // between buffers, so that small buffers do not form one stream of cache lines

template <typename T>
class Memory {
 public:
  // sharing: MAP_SHARED with the processes that this one forks, or MAP_PRIVATE.
  Memory(std::size_t count, int sharing)
      : bytes_(count * sizeof(T)), memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw Failure(fmt::format("no memory for {} bytes of buffers", bytes_));
    (void)madvise(memory_, bytes_, MADV_HUGEPAGE);  // as in the other measurements; slower without it, but correct
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(memory_, bytes_); }
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

// A tuning file for TNT_INTERNAL_TUNING without a name in the file system, so that nothing is left behind.
class TuningFile {
 public:
  explicit TuningFile(const Tuning& tuning) : file_(memfd_create("tuning", MFD_CLOEXEC)) {
    TuningTable table;
    table.set_default(tuning);
    const std::string text = table.text();
    if (file_ < 0 || write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw Failure("tune: cannot write a candidate's tuning into memory");
    }
  }
  TuningFile(const TuningFile&) = delete;
  TuningFile& operator=(const TuningFile&) = delete;
  ~TuningFile() { close(file_); }
  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

void check_room(int ranks) {
  const std::size_t needed = 2 * pool * static_cast<std::size_t>(ranks);
  if (needed <= available_memory()) return;
  throw Failure(fmt::format("tune with {} ranks needs {} MiB of memory, this machine has {}: say fewer --ranks", ranks,
                            needed >> 20, available_memory() >> 20),
                2);
}

// The buffers of one rank in a job, used in turn as in training.
class Buffers {
 public:
  // Fills all of them, because the first access to a page would take longer than the measured operation.
  Buffers() : memory_(2 * pool / sizeof(float), MAP_PRIVATE) { std::fill_n(memory_.data(), 2 * pool / sizeof(float), 1.0F); }

  void operate(const Team& team, std::size_t bytes) {
    const std::size_t stride = bytes + gap;
    float* const in = memory_.data() + turn_++ % (pool / stride) * stride / sizeof(float);
    check(tnt_all_reduce(team.comm(), in, in + pool / sizeof(float), bytes / sizeof(float), TNT_FLOAT32, TNT_SUM, nullptr,
                         nullptr));
  }

 private:
  Memory<float> memory_;  // pool bytes of inputs and as many of outputs
  std::size_t turn_ = 0;
};

// Runs one rank: rank 0 writes the median of every size to medians.
int be_rank(const Start& start, const Candidate& candidate, const std::string& tuning, double* medians) {
  try {
    setenv("TNT_INTERNAL_TUNING", tuning.c_str(), 1);
    Buffers buffers;
    // as many calls as StoreTuner needs for its choice
    const Options options{.warmup = 10, .target = 0.03, .max_time = seconds_per_size, .timeout = timeout};
    const Team team(start, options);
    for (std::size_t i = 0; i < candidate.sizes.size(); ++i) {
      const auto times = measure({[&] { buffers.operate(team, candidate.sizes[i]); }}, options, team);
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

Rounds measure_candidates(const std::vector<Candidate>& candidates, int ranks, double seconds, int max_rounds) {
  check_room(ranks);
  std::size_t max_sizes = 0;
  for (const Candidate& candidate : candidates) max_sizes = std::max(max_sizes, candidate.sizes.size());
  const Memory<double> medians(max_sizes, MAP_SHARED);
  const auto nothing = [](const char*) -> const char* { return nullptr; };

  const std::int64_t begin = tnt_clock_ns();
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> all;
  Rounds result;
  double elapsed = 0;
  // a round that would end too late is not begun
  while (result.rounds == 0 || (result.rounds < max_rounds && elapsed * (result.rounds + 1) / result.rounds <= seconds)) {
    for (const Candidate& candidate : candidates) {
      const TuningFile file(candidate.tuning);
      const int code = run_forked(find_start(Options{.ranks = ranks}, nothing),
                                  [&](const Start& start) { return be_rank(start, candidate, file.path(), medians.data()); });
      if (code != 0) throw Failure(fmt::format("tune: the measurement with {} ranks failed", ranks));
      for (std::size_t i = 0; i < candidate.sizes.size(); ++i) {
        all[{candidate.name, candidate.sizes[i]}].push_back(medians.data()[i]);
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
