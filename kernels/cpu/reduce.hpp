// Reduces n buffers into one, in the order of the buffers or in a tree over them: one rounding, the same bits always.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// out[i] = op(sources[0][i], sources[1][i], ...) for count elements; out may be one of the sources. TNT_AVG divides by the
// number of sources; tree_sum adds neighbours first. Cost: n reads and one write of count elements. Sums of up to eight sources
// and other reductions of two stay in registers, the rest in a block in the L1 cache. isa changes the speed, not the bits.
void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
            Isa isa = best_isa());

}  // namespace tnt
