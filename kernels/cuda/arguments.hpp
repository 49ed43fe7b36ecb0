// What a launch refuses: apart from the kernels, as nvcc need not read the headers of the messages for every architecture.
#pragma once

#include "tarantella/tarantella.h"

namespace tnt::gpu {

[[noreturn]] void refuse_dtype(tnt_dtype_t dtype);
void check_sources(int n);  // throws TNT_INVALID_ARGUMENT unless it is from 1 to max_sources

}  // namespace tnt::gpu
