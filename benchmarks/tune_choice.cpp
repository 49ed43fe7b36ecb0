#include "benchmarks/tune.hpp"

#include <fmt/core.h>
#include <cmath>

#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

constexpr double worth_a_change = 0.05;  // a smaller gain is noise, and the defaults were measured for longer
constexpr std::size_t kilo = 1024;

constexpr const char* ll = "LL";
constexpr const char* one_shot = "one-shot";
constexpr const char* two_shot = "two-shot";
constexpr const char* streaming = "streaming";

std::vector<std::size_t> doubling(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = begin; size <= end; size *= 2) sizes.push_back(size);
  return sizes;
}

std::string chunks_of(std::size_t bytes) { return format_size(bytes) + " chunks"; }

constexpr std::size_t smaller_chunks[] = {128 * kilo, 64 * kilo};

// For the sizes at which both were measured: the logarithm of the ratio of the times.
SizeTimes log_ratios(const SizeTimes& first, const SizeTimes& second) {
  SizeTimes ratios;
  for (const auto& [bytes, time] : first) {
    if (const auto other = second.find(bytes); other != second.end()) ratios[bytes] = std::log(time / other->second);
  }
  return ratios;
}

const SizeTimes& times_of(const Measured& measured, const std::string& name) {
  static const SizeTimes none;
  const auto found = measured.find(name);
  return found == measured.end() ? none : found->second;
}

struct Border {
  std::size_t last = 0;   // last size that goes below; 0: none
  std::size_t first = 0;  // first size that goes above; 0: none
};

// standard: the last size that goes below by default.
Border border_between(const SizeTimes& below, const SizeTimes& above, std::size_t standard, std::size_t least) {
  std::vector<std::size_t> sizes;
  std::size_t by_default = 0;
  for (const auto& [bytes, ratio] : log_ratios(below, above)) {
    sizes.push_back(bytes);
    by_default += bytes <= standard ? 1 : 0;
  }
  const std::size_t n = choose_border(below, above, by_default, least);
  return {n > 0 ? sizes[n - 1] : 0, n < sizes.size() ? sizes[n] : 0};
}

std::size_t choose_chunks(const Measured& measured) {
  std::size_t best = Tuning{}.chunk_bytes;
  double most = worth_a_change;
  for (const std::size_t bytes : smaller_chunks) {
    double saved = 0;
    const SizeTimes ratios = log_ratios(times_of(measured, streaming), times_of(measured, chunks_of(bytes)));
    for (const auto& [size, ratio] : ratios) saved += ratio / static_cast<double>(ratios.size());
    if (saved <= most) continue;
    most = saved;
    best = bytes;
  }
  return best;
}

}  // namespace

std::vector<Candidate> candidates_for(int ranks) {
  const Tuning cached{.ll_bytes = 0, .one_shot_bytes = 0, .streaming_bytes = Tuning::never_streaming};
  Tuning streamed = cached;
  streamed.streaming_bytes = 0;
  std::vector<Candidate> all;
  const bool with_ll = static_cast<std::size_t>(ranks) <= Tuning::max_ll_ranks;
  if (with_ll) all.push_back({ll, {.ll_bytes = Tuning::max_ll}, doubling(64, Tuning::max_ll)});
  all.push_back({one_shot,
                 {.ll_bytes = 0, .one_shot_bytes = Tuning::max_one_shot},
                 doubling(with_ll ? 64 : Tuning::max_ll, Tuning::max_one_shot)});
  all.push_back({two_shot, cached, doubling(Tuning::max_ll, 4096 * kilo)});
  all.push_back({streaming, streamed, doubling(2 * Tuning::max_one_shot, 4096 * kilo)});
  for (const std::size_t bytes : smaller_chunks) {
    streamed.chunk_bytes = bytes;
    all.push_back({chunks_of(bytes), streamed, {1024 * kilo, 4096 * kilo}});
  }
  return all;
}

std::size_t choose_border(const SizeTimes& below, const SizeTimes& above, std::size_t standard, std::size_t least) {
  std::vector<double> ratios;
  for (const auto& [bytes, ratio] : log_ratios(below, above)) ratios.push_back(ratio);
  std::size_t best = standard;
  double most = 0;
  const auto consider = [&](std::size_t border, double saved, std::size_t moved) {
    saved -= static_cast<double>(moved) * worth_a_change;
    if (border < least || saved <= most) return;
    most = saved;
    best = border;
  };
  // from the standard outwards, so that the nearer of two equal borders is taken
  double saved = 0;
  for (std::size_t border = standard; border > 0; --border) {
    saved += ratios[border - 1];  // now above
    consider(border - 1, saved, standard - border + 1);
  }
  saved = 0;
  for (std::size_t border = standard; border < ratios.size(); ++border) {
    saved -= ratios[border];  // now below
    consider(border + 1, saved, border + 1 - standard);
  }
  return best;
}

Tuning choose(const Measured& measured) {
  Tuning tuning;
  const SizeTimes& once = times_of(measured, one_shot);
  const SizeTimes& twice = times_of(measured, two_shot);
  if (measured.contains(ll)) {
    tuning.ll_bytes = border_between(times_of(measured, ll), once, tuning.ll_bytes, 0).last;
  }
  // at least the smallest size, because the two-shot time below it was not measured
  tuning.one_shot_bytes = border_between(once, twice, tuning.one_shot_bytes, 1).last;
  const Border border = border_between(twice, times_of(measured, streaming), tuning.streaming_bytes - 1, 0);
  tuning.streaming_bytes = border.first > 0 ? border.first : Tuning::never_streaming;
  tuning.chunk_bytes = choose_chunks(measured);
  return tuning;
}

std::string algorithm_at(const Tuning& tuning, int ranks, std::size_t bytes) {
  if (bytes <= tuning.ll_bytes && static_cast<std::size_t>(ranks) <= Tuning::max_ll_ranks) return ll;
  if (bytes <= tuning.one_shot_bytes) return one_shot;
  const bool smaller = tuning.chunk_bytes < bytes && tuning.chunk_bytes != Tuning{}.chunk_bytes;
  const std::string name = bytes < tuning.streaming_bytes ? two_shot : streaming;
  return smaller ? fmt::format("{}, {}", name, chunks_of(tuning.chunk_bytes)) : name;
}

}  // namespace tnt::bench
