#include "benchmarks/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "benchmarks/element.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t sample = 64;  // number of wrong elements that a guess must explain
constexpr int longest_shift = 16;   // elements
constexpr unsigned char stale = 0xc3;

struct Wrong {
  std::size_t index;
  double got;
};

std::string hex(const void* out, std::size_t index, tnt_dtype_t dtype) {
  const std::size_t size = tnt_dtype_size(dtype);
  const auto* bytes = static_cast<const unsigned char*>(out) + index * size;
  std::string text = "0x";
  for (std::size_t i = size; i-- > 0;) text += fmt::format("{:02x}", bytes[i]);  // little endian
  return text;
}

std::string hex_of(double value, tnt_dtype_t dtype) {
  std::uint64_t bytes = 0;
  store(&bytes, 0, dtype, value);
  return hex(&bytes, 0, dtype);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The result if the ranks' inputs were combined in another way.
double without(const Problem& problem, std::size_t i, int rank, double times) {
  const double all = expected(problem, exact_input, i);
  const double one = exact_input(problem, rank, origin(problem, i).element);
  if (problem.op == TNT_AVG) return all - times * one / problem.ranks;
  return all - times * one;
}

bool explains(const std::vector<Wrong>& wrong, const std::function<double(std::size_t)>& guess) {
  return std::all_of(wrong.begin(), wrong.end(), [&](const Wrong& w) { return same(w.got, guess(w.index)); });
}

bool is_fill(const void* out, std::size_t index, tnt_dtype_t dtype) {
  const std::size_t size = tnt_dtype_size(dtype);
  const auto* bytes = static_cast<const unsigned char*>(out) + index * size;
  return std::all_of(bytes, bytes + size, [](unsigned char b) { return b == stale; });
}

std::optional<std::string> guess_rank(const Problem& problem, const std::vector<Wrong>& wrong) {
  if (origin(problem, 0).rank >= 0 || (problem.op != TNT_SUM && problem.op != TNT_AVG)) return std::nullopt;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    if (explains(wrong, [&](std::size_t i) { return without(problem, i, rank, 1); }))
      return fmt::format("rank {} is missing", rank);
    if (explains(wrong, [&](std::size_t i) { return without(problem, i, rank, -1); })) {
      return fmt::format("rank {} is counted twice", rank);
    }
  }
  return std::nullopt;
}

std::optional<std::string> guess_shift(const Problem& problem, const std::vector<Wrong>& wrong) {
  const auto count = static_cast<long>(out_count(problem));
  for (int distance = 1; distance <= longest_shift; ++distance) {
    for (const int shift : {-distance, distance}) {
      const bool fits = explains(wrong, [&](std::size_t i) {
        const long from = static_cast<long>(i) + shift;
        return from < 0 || from >= count ? std::nan("") : expected(problem, exact_input, static_cast<std::size_t>(from));
      });
      if (fits) return fmt::format("shifted by {} element{}", -shift, distance == 1 ? "" : "s");
    }
  }
  return std::nullopt;
}

std::string guess(const Problem& problem, const void* out, const std::vector<Wrong>& wrong, std::uint64_t previous_seed) {
  if (std::all_of(wrong.begin(), wrong.end(), [&](const Wrong& w) { return is_fill(out, w.index, problem.dtype); })) {
    return "stale: never written";
  }
  Problem previous = problem;
  previous.seed = previous_seed;
  if (explains(wrong, [&](std::size_t i) { return expected(previous, exact_input, i); })) return "stale: the previous result";
  if (auto text = guess_rank(problem, wrong)) return *text;
  if (auto text = guess_shift(problem, wrong)) return *text;
  return "no pattern";
}

}  // namespace

void fill_stale(void* buffer, std::size_t bytes) {
  if (bytes > 0) std::memset(buffer, stale, bytes);
}

Verdict verify_exact(const Problem& problem, const void* out, std::uint64_t previous_seed) {
  Verdict verdict;
  verdict.check = "ok";
  std::vector<Wrong> wrong;
  const std::size_t count = out_count(problem);
  for (std::size_t i = 0; i < count; ++i) {
    const double got = load(out, i, problem.dtype);
    if (same(got, expected(problem, exact_input, i))) continue;
    ++verdict.wrong;
    if (wrong.size() < sample) wrong.push_back({i, got});
  }
  if (wrong.empty()) return verdict;
  verdict.check = "wrong";
  const std::size_t first = wrong.front().index;
  verdict.text =
      fmt::format("rank {}: {} of {} elements are wrong; element {} is {}, expected {}: {}", problem.rank, verdict.wrong, count,
                  first, hex(out, first, problem.dtype), hex_of(expected(problem, exact_input, first), problem.dtype),
                  guess(problem, out, wrong, previous_seed));
  return verdict;
}

double largest_error(const Problem& problem, const void* out) {
  constexpr std::size_t enough = 1 << 20;
  const std::size_t count = out_count(problem);
  const std::size_t step = std::max<std::size_t>(1, count / enough);
  double largest = 0;
  for (std::size_t i = 0; i < count; i += step) {
    const double exact = expected(problem, random_input, i);
    const double error = std::abs(load(out, i, problem.dtype) - exact);
    // inputs are at most 1 in magnitude: if a sum cancels, the error is measured in units of its terms
    const double scale = problem.op == TNT_SUM || problem.op == TNT_AVG ? std::max(std::abs(exact), 1.0) : std::abs(exact);
    const double ulp = error / unit_of(scale, problem.dtype);
    largest = std::isnan(ulp) ? std::numeric_limits<double>::infinity() : std::max(largest, ulp);
  }
  return largest;
}

double error_bound(const Problem& problem) {
  const bool once = problem.dtype == TNT_FLOAT16 || problem.dtype == TNT_BFLOAT16;
  // partial sums of n numbers up to 1 are below n, so each rounding is at most half a unit of n, which is n units of 1
  return once ? 1.0 : 0.5 * problem.ranks * problem.ranks + 1.0;
}

std::uint64_t hash_of(const void* buffer, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, eight bytes at a time
  const auto* at = static_cast<const unsigned char*>(buffer);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0x100000001b3U;
    hash ^= hash >> 29;
  }
  for (; bytes > 0; --bytes, ++at) hash = (hash ^ *at) * 0x100000001b3U;
  return hash;
}

}  // namespace tnt::bench
