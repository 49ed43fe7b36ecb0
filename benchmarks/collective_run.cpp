#include "benchmarks/runs.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "benchmarks/buffers.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/rows.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/verify.hpp"

namespace tnt::bench {
namespace {

// The buffers of one row, and one operation on them.
class Bench {
 public:
  Bench(const Row& row, const Team& team)
      : row_(row),
        problem_(problem_of(row, team.rank())),
        shape_(shape_of(row.collective, row.bytes, tnt_dtype_size(row.dtype), team.ranks(), team.rank())),
        in_(shape_.in * tnt_dtype_size(row.dtype), row.unalign * tnt_dtype_size(row.dtype), row.cache),
        out_(shape_.out * tnt_dtype_size(row.dtype), row.unalign * tnt_dtype_size(row.dtype), row.cache) {}

  // Fills all buffers with numbers, because zeros would hide the cost of arithmetic.
  void fill_all() {
    fill(problem_, exact_input, in_.first());
    for (std::size_t i = 1; i < in_.size(); ++i) std::copy_n(in_.first(), in_.bytes(), in_.at(i));
    if (!row_.in_place) return;
    for (std::size_t i = 0; i < out_.size(); ++i) std::copy_n(in_.first(), in_.bytes(), out_.at(i));
  }

  void operate(Backend& backend) {
    std::byte* out = out_.next();
    const std::byte* in = row_.in_place ? out : in_.next();
    backend.run(row_.collective, in, out, shape_.count, row_.dtype, row_.op, problem_.root);
  }

  // One operation on fresh input; returns its result.
  const std::byte* operate_on(Backend& backend, Input input, std::uint64_t seed, bool stale) {
    problem_.seed = seed;
    std::byte* out = out_.first();
    std::byte* in = row_.in_place ? out : in_.first();
    if (stale && !row_.in_place) fill_stale(out, out_.bytes());
    fill(problem_, input, in);
    backend.run(row_.collective, in, out, shape_.count, row_.dtype, row_.op, problem_.root);
    return out;
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] std::size_t out_bytes() const { return out_.bytes(); }
  [[nodiscard]] std::string damage() const {
    const std::string text = in_.damage();
    return text.empty() ? out_.damage() : text;
  }

 private:
  const Row& row_;
  Problem problem_;
  Shape shape_;
  Pool in_;
  Pool out_;
};

void add_problem(Verdict& verdict, const std::string& text) {
  if (text.empty()) return;
  verdict.check = "wrong";
  if (verdict.text.empty()) verdict.text = text;
}

void check_exact(Verdict& verdict, Bench& bench, Backend& backend) {
  for (const std::uint64_t seed : {1U, 2U}) {  // the second seed reuses the buffers of the first, so a stale result shows
    const std::byte* out = bench.operate_on(backend, exact_input, seed, seed == 1);
    const Verdict exact = verify_exact(bench.problem(), out, seed - 1);
    verdict.wrong += exact.wrong;
    verdict.check = verdict.check == "wrong" ? verdict.check : exact.check;
    add_problem(verdict, exact.text);
  }
}

void check_accuracy(Verdict& verdict, Bench& bench, Backend& backend, const Team& team) {
  const std::byte* out = bench.operate_on(backend, random_input, 3, false);
  verdict.max_ulp = team.maximum(largest_error(bench.problem(), out));
  const double bound = error_bound(bench.problem());
  if (verdict.max_ulp > bound) {
    add_problem(verdict, fmt::format("random input: off by {:.3g} ULP, more than {:.3g}", verdict.max_ulp, bound));
  }
}

void check_repeat(Verdict& verdict, Bench& bench, Backend& backend, const Team& team, int runs) {
  const Collective collective = bench.problem().collective;
  const bool same_on_all = collective == Collective::all_reduce || collective == Collective::all_gather ||
                           collective == Collective::all_gather_v || collective == Collective::broadcast;
  for (int run = 0; run < std::max(runs, 3); ++run) {
    const std::uint64_t hash = hash_of(bench.operate_on(backend, random_input, 4, false), bench.out_bytes());
    if (run == 0) verdict.hash = hash;
    if (hash != verdict.hash) add_problem(verdict, fmt::format("rank {}: run {} gave other bits than run 0", team.rank(), run));
  }
  const std::vector<std::uint64_t> hashes = team.gather(verdict.hash);
  for (std::size_t rank = 1; same_on_all && rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) add_problem(verdict, fmt::format("rank {} has other bits than rank 0", rank));
  }
}

}  // namespace

Verdict verify(Backend& backend, const Row& row, const Options& options, const Team& team) {
  Verdict verdict;
  if (row.collective == Collective::barrier) return verdict;
  const bool summed = reduces(row.collective) && (row.dtype == TNT_FLOAT32 || row.dtype == TNT_FLOAT64 ||
                                                  row.dtype == TNT_FLOAT16 || row.dtype == TNT_BFLOAT16);
  Row hot = row;
  hot.cache = Cache::hot;
  Bench bench(hot, team);
  // exact averages of many ranks do not fit into a mantissa of 8 bits
  const bool exact = row.op != TNT_AVG || team.ranks() <= 8;
  for (int run = 0; run < options.check_runs && options.check_exact && exact; ++run) check_exact(verdict, bench, backend);
  verdict.text = team.first_text(verdict.text);  // before the less specific messages of the following checks
  for (int run = 0; run < options.check_runs && options.check_accuracy && summed; ++run) {
    check_accuracy(verdict, bench, backend, team);
  }
  if (options.check_repeat && (summed || !reduces(row.collective))) {
    check_repeat(verdict, bench, backend, team, options.check_runs);
  }
  add_problem(verdict, bench.damage());
  if (verdict.check == "off" && (options.check_accuracy || options.check_repeat)) verdict.check = "ok";

  verdict.wrong = team.sum(verdict.wrong);
  verdict.text = team.first_text(verdict.text);
  if (!verdict.text.empty()) verdict.check = "wrong";
  return verdict;
}

namespace {

int run_row(const Row& plan, const Options& options, const Team& team, Backends& backends, Report& report) {
  std::vector<Times> times;
  const bool with_reference = backends.reference && backends.reference->supports(plan.collective, plan.dtype, plan.op);
  {
    Bench bench(plan, team);
    bench.fill_all();
    std::vector<Contender> contenders;
    for (const auto& backend : backends.tarantella) contenders.emplace_back([&bench, b = backend.get()] { bench.operate(*b); });
    if (with_reference) contenders.emplace_back([&bench, &backends] { bench.operate(*backends.reference); });
    times = measure(contenders, options, team);
  }
  int failures = 0;
  for (std::size_t i = 0; i < backends.tarantella.size(); ++i) {
    Row row = plan;
    row.backend = backends.tarantella[i]->name();
    row.times = times[i];
    if (with_reference) {
      row.against = backends.reference->name();
      row.against_times = times.back();
      row.ratio = times.back().p50 / row.times.p50;
    }
    add_bandwidth(row, backends.bytes_per_second);
    row.verdict = verify(*backends.tarantella[i], row, options, team);
    failures += row.verdict.check == "wrong" ? 1 : 0;
    if (team.leads()) report.row(row);
  }
  return failures;
}

}  // namespace

int run_collective(const Options& options, const Team& team, Backends& backends, Report& report) {
  int failures = 0;
  for (const Row& row : planned_rows(options, team.ranks())) failures += run_row(row, options, team, backends, report);
  return failures;
}

}  // namespace tnt::bench
