// What the sources of kernels have of each other on the host.
#pragma once

#include "tarantella/tarantella.h"

namespace tnt::gpu {

// Argument checks of the launch functions, in a file of their own, because nvcc would parse the headers for error messages once
// for every architecture.
[[noreturn]] void refuse_dtype(tnt_dtype_t dtype);
void check_sources(int n);  // throws TNT_INVALID_ARGUMENT unless n is from 1 to max_sources

// Loading the kernels of each source; load_kernels (bucket_kernels.hpp) calls them.
void load_accumulate();
void load_pack();
void load_unpack();
void load_reduce();
void load_statistics();

}  // namespace tnt::gpu
