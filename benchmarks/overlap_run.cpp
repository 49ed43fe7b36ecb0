#include "benchmarks/runs.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "benchmarks/gradients.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/statistics.hpp"

namespace tnt::bench {
namespace {

// Work for a core without memory access: eight chains of dependent multiplications.
class Compute {
 public:
  // Not inlined, so that calibrate times the loop that is measured.
  [[gnu::noinline]] void run(std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
      for (float& x : chains_) x = x * 0.999F + 1e-3F;  // stays near 1
    }
    sink_ = chains_[0];
  }

  // The number of rounds that take this many seconds here.
  [[nodiscard]] std::size_t calibrate(double seconds) {
    constexpr std::size_t trial = 2'000'000;
    run(trial);
    const std::int64_t begin = tnt_clock_ns();
    run(trial);
    const double took = static_cast<double>(tnt_clock_ns() - begin) * 1e-9;
    return static_cast<std::size_t>(seconds / took * static_cast<double>(trial));
  }

 private:
  alignas(64) std::array<float, 8> chains_{1, 1, 1, 1, 1, 1, 1, 1};
  volatile float sink_ = 0;  // prevents the compiler from removing the work
};

// The number of rounds that take this many seconds on the slowest rank; all ranks compute the same amount.
std::size_t rounds_for(double seconds, const Team& team) {
  Compute trial;
  return static_cast<std::size_t>(-team.maximum(-static_cast<double>(trial.calibrate(seconds))));
}

// Backward from the last layer to the first: work in proportion to the tensor, then its gradient is ready.
class Backward {
 public:
  Backward(const Gradients& gradients, std::size_t rounds) : gradients_(gradients), rounds_(rounds) {}

  void run(bool hand_over) {
    const std::int64_t begin = tnt_clock_ns();
    for (std::size_t tensor = gradients_.size(); tensor-- > 0;) {
      const double share =
          static_cast<double>(gradients_.count(tensor) * sizeof(float)) / static_cast<double>(gradients_.bytes());
      compute_.run(static_cast<std::size_t>(share * static_cast<double>(rounds_)));
      if (hand_over) gradients_.ready(tensor);
    }
    compute_ms_.push_back(static_cast<double>(tnt_clock_ns() - begin) * 1e-6);
    if (hand_over) gradients_.finish();
  }

  // Median milliseconds of the computation.
  [[nodiscard]] double compute_ms() const {
    std::vector<double> sorted = compute_ms_;
    std::sort(sorted.begin(), sorted.end());
    return median(sorted);
  }

 private:
  const Gradients& gradients_;
  Compute compute_;
  std::size_t rounds_;
  std::vector<double> compute_ms_;
};

void run_model(const Model& model, const Options& options, const Team& team, Backends& backends, Report& report) {
  const Gradients gradients(model, options, team);
  const std::size_t rounds = rounds_for(options.compute_ms * 1e-3, team);
  Backward alone(gradients, rounds);
  Backward together(gradients, rounds);
  const std::vector<Times> times =
      measure({[&] { together.run(true); }, [&] { alone.run(false); }, [&] { gradients.step(); }}, options, team);

  const double step = times[0].p50 * 1e-3;
  const double without = times[1].p50 * 1e-3;
  const double communication = times[2].p50 * 1e-3;
  const double exposed = std::max(0.0, step - without);
  const double compute_together = team.maximum(together.compute_ms());
  const double compute_alone = team.maximum(alone.compute_ms());
  Row row = gradients.row(Collective::overlap, model, backends.tarantella.front()->name(), times[0]);
  row.extra = {{"step_ms", step},
               {"step_ms_without_communication", without},
               {"communication_ms", communication},
               {"exposed_ms", exposed},
               {"hidden_percent", std::clamp(100.0 * (1.0 - exposed / communication), 0.0, 100.0)},
               {"slowdown_percent", 100.0 * (compute_together / compute_alone - 1.0)}};
  if (team.leads()) report.row(row);
}

}  // namespace

int run_overlap(const Options& options, const Team& team, Backends& backends, Report& report) {
  for (const Model& model : models_of(options)) run_model(model, options, team, backends, report);
  return 0;
}

}  // namespace tnt::bench
