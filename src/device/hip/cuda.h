// The types of CUDA's driver that src/device/cuda uses. HIP needs no contexts: a device's number stands for the device's.
#pragma once

#include <hip/hip_runtime_api.h>

struct TntHipContext;  // never defined: the number of a device + 1

using CUcontext = TntHipContext*;
using CUdevice = int;
using CUresult = hipError_t;
using CUstream = hipStream_t;

inline constexpr hipError_t CUDA_SUCCESS = hipSuccess;
