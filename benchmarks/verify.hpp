// The checks of a result: which elements are wrong, and what it looks like when they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "benchmarks/test_data.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// Compares with the exact result, bit by bit in effect: 0 ULP. text names rank, element, got and expected in hex, and a
// guess: a stale buffer (the result of previous_seed, or what fill_stale wrote), rank k missing, rank k counted twice, shifted.
[[nodiscard]] Verdict verify_exact(const Problem& problem, const void* out, std::uint64_t previous_seed);

// The largest error in units of the last place, against a float64 reference; looks at no more than a million elements.
[[nodiscard]] double largest_error(const Problem& problem, const void* out);

// What the result of this problem's random input may be off by, in ULP of the largest partial sum: the bound of a sum in
// rank order that is rounded once (16-bit types) or at each rank.
[[nodiscard]] double error_bound(const Problem& problem);

void fill_stale(void* buffer, std::size_t bytes);  // what no result looks like

[[nodiscard]] std::uint64_t hash_of(const void* buffer, std::size_t bytes);

}  // namespace tnt::bench
