// Reduces n buffers into one, in the tree of register_sums.hpp over the buffers: one rounding, the same bits always.
//
// kernels/cpu has the loops over elements in host memory: pack and unpack, sums, copies, 16-bit floats, each compiled for
// several instruction sets (isa.hpp). Nothing here knows ranks, buckets' plans or threads.
#pragma once

#include <cstddef>
#include <span>

#include "common/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// out[i] = op(sources[0][i], sources[1][i], ...) for count elements; out may be one of the sources. TNT_AVG divides by the
// number of sources. Logical and bitwise operations throw TNT_INVALID_ARGUMENT for floating-point types. groups: the sources
// are groups of these sizes, one after another; the tree is over each group, then over the groups. None: one group. Cost: n
// reads and one write of count elements. Up to eight sources are combined in registers, more in blocks in the L1 cache. isa
// changes the speed, not the bits.
void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
            Isa isa = best_isa(), std::span<const std::size_t> groups = {});

// data[i] /= n, as TNT_AVG divides the sum of n sources. For float32, float64, int64 and uint64, the types in which sums are
// held.
void divide(void* data, std::size_t count, tnt_dtype_t dtype, std::size_t n);

// A scaled sum in the tree over a batch's shards: the bits of n ranks that pack and reduce, computed on one rank.
//
// out[i] = the sum over k of scales[k] * terms[k][i], neighbours first. Each product is rounded to dtype as in pack
// (kernels/cpu/pack.hpp), and the sum is rounded once as in reduce. A scale of 0 contributes zeros, and its term is not read.
// out may be one of the terms. Cost: one read of each term and one write. Products of float32 and float64 stay in registers if
// there are at most eight and no scale is 0, other products in the L1 cache. isa changes the speed, not the bits.
void add_scaled(void* out, std::span<const void* const> terms, std::span<const double> scales, std::size_t count,
                tnt_dtype_t dtype, Isa isa = best_isa());

}  // namespace tnt
