#include "benchmarks/runs.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "benchmarks/gradients.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/models.hpp"
#include "benchmarks/shape.hpp"

namespace tnt::bench {
namespace {

// A trainer without our library: copies the tensors of a bucket into one buffer, calls MPI, copies them back.
class ManualBuckets {
 public:
  ManualBuckets(const Gradients& gradients, Backend& backend) : gradients_(gradients), backend_(backend) {
    for (const auto& bucket : gradients.buckets()) {
      std::size_t count = 0;
      for (const std::size_t tensor : bucket) count += gradients.count(tensor);
      fused_.emplace_back(count, 0.0F);
    }
  }

  void step() {
    for (std::size_t b = 0; b < fused_.size(); ++b) {
      const auto& bucket = gradients_.buckets()[b];
      float* at = fused_[b].data();
      for (const std::size_t tensor : bucket) {
        std::memcpy(at, gradients_.data(tensor), gradients_.count(tensor) * sizeof(float));
        at += gradients_.count(tensor);
      }
      backend_.run(Collective::all_reduce, fused_[b].data(), fused_[b].data(), fused_[b].size(), TNT_FLOAT32, TNT_SUM, 0);
      at = fused_[b].data();
      for (const std::size_t tensor : bucket) {
        std::memcpy(gradients_.data(tensor), at, gradients_.count(tensor) * sizeof(float));
        at += gradients_.count(tensor);
      }
    }
  }

 private:
  const Gradients& gradients_;
  Backend& backend_;
  std::vector<std::vector<float>> fused_;
};

// The maximum relative error of one rounding to the wire type.
double unit_of(tnt_dtype_t wire) {
  if (wire == TNT_FLOAT32) return 0.0;
  return wire == TNT_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

// One step with known values: every element of every tensor must be the mean over ranks, computed as in the library. 16-bit
// wire types may round once on each rank and once more.
Verdict verified(const Gradients& gradients, const Team& team) {
  const auto value = [](std::size_t tensor, std::size_t i, int rank) {
    return static_cast<float>((tensor * 31 + i * 7 + static_cast<std::size_t>(rank) * 3) % 17) - 8.0F;
  };
  for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    for (std::size_t i = 0; i < gradients.count(tensor); ++i) gradients.data(tensor)[i] = value(tensor, i, team.rank());
  }
  gradients.step();
  const auto scale = static_cast<float>(1.0 / team.ranks());
  const double bound = 1.01 * unit_of(gradients.wire());
  Verdict verdict{.check = "ok"};
  for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    for (std::size_t i = 0; i < gradients.count(tensor); ++i) {
      float sum = scale * value(tensor, i, 0);
      float magnitudes = std::fabs(sum);
      for (int rank = 1; rank < team.ranks(); ++rank) {
        sum += scale * value(tensor, i, rank);
        magnitudes += std::fabs(scale * value(tensor, i, rank));
      }
      const double error = std::fabs(static_cast<double>(gradients.data(tensor)[i]) - static_cast<double>(sum));
      if (error <= bound * static_cast<double>(magnitudes + std::fabs(sum))) continue;  // false for NaN
      if (verdict.wrong++ == 0) {
        verdict.text = fmt::format("rank {}: tensor {} element {} is {}, expected {}", team.rank(), tensor, i,
                                   gradients.data(tensor)[i], sum);
      }
    }
  }
  verdict.wrong = team.sum(verdict.wrong);
  verdict.text = team.first_text(verdict.text);
  if (verdict.wrong > 0) verdict.check = "wrong";
  return verdict;
}

int run_model(const Model& model, const Options& options, const Team& team, Backends& backends, Report& report) {
  const Gradients gradients(model, options, team);
  std::vector<Contender> contenders{[&] { gradients.step(); }};
  std::optional<ManualBuckets> manual;
  if (backends.reference) {
    manual.emplace(gradients, *backends.reference);
    contenders.emplace_back([&] { manual->step(); });
  }
  const tnt_reducer_stats_t before = gradients.stats();
  const std::vector<Times> times = measure(contenders, options, team);
  const tnt_reducer_stats_t after = gradients.stats();

  Row row = gradients.row(Collective::bucket, model, backends.tarantella.front()->name(), times[0]);
  const double seconds = row.times.p50 * 1e-6;
  row.algbw_gbps = static_cast<double>(row.bytes) / seconds * 1e-9;
  row.busbw_gbps = *row.algbw_gbps * busbw_factor(Collective::all_reduce, team.ranks());
  const double traffic = min_traffic(Collective::all_reduce, static_cast<double>(row.bytes), team.ranks(), true);
  if (backends.bytes_per_second && traffic > 0) row.limit_percent = 100.0 * traffic / *backends.bytes_per_second / seconds;
  const auto steps = static_cast<double>(after.steps - before.steps);
  row.extra = {
      {"tensors", static_cast<double>(gradients.size())},          {"buckets", static_cast<double>(gradients.buckets().size())},
      {"pack_us", (after.pack - before.pack) / steps * 1e6},       {"wait_us", (after.wait - before.wait) / steps * 1e6},
      {"reduce_us", (after.reduce - before.reduce) / steps * 1e6}, {"unpack_us", (after.unpack - before.unpack) / steps * 1e6}};
  if (backends.reference) {
    row.against = backends.reference->name();
    row.against_times = times[1];
    row.ratio = times[1].p50 / times[0].p50;
  }
  for (int run = 0; run < options.check_runs && options.check_exact; ++run) {
    const Verdict verdict = verified(gradients, team);
    if (run == 0 || verdict.check == "wrong") row.verdict = verdict;
  }
  if (team.leads()) report.row(row);
  return row.verdict.check == "wrong" ? 1 : 0;
}

}  // namespace

int run_bucket(const Options& options, const Team& team, Backends& backends, Report& report) {
  int failures = 0;
  for (const Model& model : models_of(options)) failures += run_model(model, options, team, backends, report);
  return failures;
}

}  // namespace tnt::bench
