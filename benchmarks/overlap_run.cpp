#include "benchmarks/overlap_run.hpp"

#include <algorithm>
#include <array>

#include "benchmarks/gradients.hpp"
#include "benchmarks/measure.hpp"

namespace tnt::bench {
namespace {

// Work that a core must do and no memory: multiplications that depend on one another, eight chains at once.
class Compute {
 public:
  void run(std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
      for (float& x : chains_) x = x * 1.0000001F + 1e-9F;
    }
  }

  // Rounds that take so many seconds on a core of its own.
  [[nodiscard]] std::size_t calibrate(double seconds) {
    constexpr std::size_t trial = 2'000'000;
    run(trial);
    const std::int64_t begin = tnt_clock_ns();
    run(trial);
    const double took = static_cast<double>(tnt_clock_ns() - begin) * 1e-9;
    return static_cast<std::size_t>(seconds / took * static_cast<double>(trial));
  }

  [[nodiscard]] float result() const { return chains_[0]; }

 private:
  alignas(64) std::array<float, 8> chains_{1, 1, 1, 1, 1, 1, 1, 1};
};

// Backward: from the last layer to the first, work in proportion to the tensor, then its gradient is there.
class Backward {
 public:
  Backward(const Gradients& gradients, double seconds) : gradients_(gradients), rounds_(compute_.calibrate(seconds)) {}

  void run(bool hand_over) {
    const std::int64_t begin = tnt_clock_ns();
    for (std::size_t tensor = gradients_.size(); tensor-- > 0;) {
      const double share =
          static_cast<double>(gradients_.count(tensor) * sizeof(float)) / static_cast<double>(gradients_.bytes());
      compute_.run(static_cast<std::size_t>(share * static_cast<double>(rounds_)));
      if (hand_over) gradients_.ready(tensor);
    }
    compute_ns_ += tnt_clock_ns() - begin;
    ++runs_;
    if (hand_over) gradients_.finish();
    sink_ = compute_.result();
  }

  // Mean milliseconds of the computing part since the last call.
  double compute_ms() {
    const double mean = runs_ == 0 ? 0 : static_cast<double>(compute_ns_) * 1e-6 / runs_;
    compute_ns_ = 0;
    runs_ = 0;
    return mean;
  }

 private:
  const Gradients& gradients_;
  Compute compute_;
  std::size_t rounds_;
  std::int64_t compute_ns_ = 0;
  int runs_ = 0;
  volatile float sink_ = 0;  // so that the work is not optimised away
};

void reduce_alone(const Gradients& gradients) {
  for (std::size_t tensor = gradients.size(); tensor-- > 0;) gradients.ready(tensor);
  gradients.finish();
}

}  // namespace

int run_overlap(const Options& options, const Team& team, Field& field, Report& report) {
  const Model& model = find_model(options.model);
  const Gradients gradients(model, options, team);
  Backward alone(gradients, options.compute_ms * 1e-3);
  Backward together(gradients, options.compute_ms * 1e-3);
  const std::vector<Times> times =
      measure({[&] { together.run(true); }, [&] { alone.run(false); }, [&] { reduce_alone(gradients); }}, options, team);

  const double step = times[0].p50 * 1e-3;
  const double without = times[1].p50 * 1e-3;
  const double communication = times[2].p50 * 1e-3;
  const double exposed = std::max(0.0, step - without);
  const double compute_together = team.maximum(together.compute_ms());
  const double compute_alone = team.maximum(alone.compute_ms());
  Row row{.collective = Collective::overlap,
          .backend = field.own.front()->name(),
          .ranks = team.ranks(),
          .bytes = gradients.bytes(),
          .count = gradients.bytes() / sizeof(float),
          .label = model.name,
          .in_place = true,
          .times = times[0]};
  row.extra = {{"step_ms", step},
               {"step_ms_without_communication", without},
               {"communication_ms", communication},
               {"exposed_ms", exposed},
               {"hidden_percent", std::clamp(100.0 * (1.0 - exposed / communication), 0.0, 100.0)},
               {"slowdown_percent", 100.0 * (compute_together / compute_alone - 1.0)}};
  if (team.leads()) report.row(row);
  return 0;
}

}  // namespace tnt::bench
