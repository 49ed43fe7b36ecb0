// Checks results: finds wrong elements and guesses the cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "benchmarks/test_data.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// Compares with the exact result: 0 ULP. text names rank, element, actual and expected value in hex, and a guess: a stale
// buffer (the result of previous_seed, or the pattern of fill_stale), rank k missing, rank k counted twice, shifted.
[[nodiscard]] Verdict verify_exact(const Problem& problem, const void* out, std::uint64_t previous_seed);

// The maximum error in ULP against a float64 reference; checks at most a million elements.
[[nodiscard]] double largest_error(const Problem& problem, const void* out);

// The maximum error of this problem's random input, in ULP of the largest partial sum: the bound of a sum in any order that is
// rounded once (16-bit types) or at each rank.
[[nodiscard]] double error_bound(const Problem& problem);

void fill_stale(void* buffer, std::size_t bytes);  // a pattern that no result has

[[nodiscard]] std::uint64_t hash_of(const void* buffer, std::size_t bytes);

}  // namespace tnt::bench
