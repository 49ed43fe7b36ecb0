// Copies that pass the caches by, for results that are larger than the caches or will not be read soon.
#pragma once

#include <cstddef>

namespace tnt {

// How a result is written. streaming: not through the caches, which saves reading the lines that are to be overwritten and
// keeps what is in the caches there. Worth it (1.5 to 2.5 times) for memory that is not in a cache, harmful for memory that is.
enum class Store { cached, streaming };

// Buffers must not overlap, but may be the same. Visible to other threads in the usual way: streaming stores are fenced.
void copy(void* to, const void* from, std::size_t bytes, Store store) noexcept;

}  // namespace tnt
