// A part of the tree over a batch's shards: what n ranks would give, packed and reduced, without the ranks.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// out[i] = the sum over k of scales[k] * terms[k][i], neighbours first: each product rounded to dtype as pack rounds it
// (kernels/cpu/pack.hpp), the sum rounded once as reduce does. A scale of 0 contributes zeros, and its term is not read. out
// may be one of the terms. Cost: a read of each term and one write. Products of float32 and float64 stay in registers if there
// are at most eight and none has a scale of 0, others in the first-level cache. isa changes the speed, not the bits.
void add_scaled(void* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                tnt_dtype_t dtype, Isa isa = best_isa());

}  // namespace tnt
