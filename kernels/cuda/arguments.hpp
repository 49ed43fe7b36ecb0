// Argument checks of the launch functions, in a separate file, because nvcc would parse the headers for error messages once for
// every architecture.
#pragma once

#include "tarantella/tarantella.h"

namespace tnt::gpu {

[[noreturn]] void refuse_dtype(tnt_dtype_t dtype);
void check_sources(int n);  // throws TNT_INVALID_ARGUMENT unless n is from 1 to max_sources

}  // namespace tnt::gpu
