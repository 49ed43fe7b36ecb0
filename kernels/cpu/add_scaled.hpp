// A node of the tree over a batch's shards: what two ranks would give, packed and reduced, without the ranks.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// out[i] = scale_a * a[i] + scale_b * b[i]: each product rounded to dtype as pack rounds it (kernels/cpu/pack.hpp), the sum
// rounded once as reduce does. A scale of 0 contributes zeros, and its buffer is not read. out may be a or b. Cost: two reads
// and one write of count elements; products stay in the first-level cache. isa changes the speed, not the bits.
void add_scaled(void* out, const void* a, double scale_a, const void* b, double scale_b, std::size_t count, tnt_dtype_t dtype,
                Isa isa = best_isa());

}  // namespace tnt
