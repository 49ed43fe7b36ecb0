// Loading the kernels of each source; load_kernels (bucket_kernels.hpp) calls them.
#pragma once

namespace tnt::gpu {

void load_accumulate();
void load_pack();
void load_unpack();
void load_reduce();
void load_statistics();

}  // namespace tnt::gpu
