// Copies with streaming stores, for results that are larger than the caches or are not read soon.
//
// kernels/cpu has the loops over memory of the host: copy, pack, reduce, convert. A kernel knows pointers and counts, and
// neither ranks nor files.
#pragma once

#include <cstddef>

namespace tnt {

// How a result is written. Streaming stores bypass the caches: the overwritten lines are not read, and the caches keep their
// content. They are 1.5 to 2.5 times faster for memory that is in no cache, and slower for memory that is.
enum class Store { cached, streaming };

// Buffers must not overlap, but may be the same. Streaming stores are fenced, so that other threads see the data as usual.
void copy(void* to, const void* from, std::size_t bytes, Store store) noexcept;

}  // namespace tnt
