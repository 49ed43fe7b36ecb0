// A scaled sum in the tree over a batch's shards: the bits of n ranks that pack and reduce, computed on one rank.
#pragma once

#include <cstddef>
#include <span>

#include "common/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// out[i] = the sum over k of scales[k] * terms[k][i], neighbours first. Each product is rounded to dtype as in pack
// (kernels/cpu/pack.hpp), and the sum is rounded once as in reduce. A scale of 0 contributes zeros, and its term is not read.
// out may be one of the terms. Cost: one read of each term and one write. Products of float32 and float64 stay in registers if
// there are at most eight and no scale is 0, other products in the L1 cache. isa changes the speed, not the bits.
void add_scaled(void* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                tnt_dtype_t dtype, Isa isa = best_isa());

}  // namespace tnt
