// What a profiler sees: NVTX ranges of our domain, which nest. The program itself is the profiler.
#include <gtest/gtest.h>
#define NVTX_NO_IMPL  // the implementation is in src/device/cuda/ranges.cpp
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "device/cuda/cuda_device.hpp"
#include "device/fake_cuda.hpp"
#include "device/handles.hpp"

namespace {

std::vector<std::string> seen;

nvtxDomainHandle_t create(const char* name) {
  seen.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&seen);
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const bool ours = reinterpret_cast<void*>(domain) == &seen;
  seen.push_back((ours ? "begin " : "begin elsewhere ") + std::string(attributes->message.ascii));
  return 0;
}
int pop(nvtxDomainHandle_t /*domain*/) {
  seen.emplace_back("end");
  return 0;
}

template <typename Function>
void put(NvtxFunctionTable table, int index, Function function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int initialise(NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  put(table, NVTX_CBID_CORE2_DomainCreateA, &create);
  put(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  put(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}

}  // namespace

// NVTX looks for this name in the program before it asks the environment.
extern "C" NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = &initialise;

namespace tnt {
namespace {

TEST(CudaRanges, AreSeenByAProfiler) {
  testing::FakeCuda::reset(1);
  CudaDevice device(0);
  {
    const DeviceRange bucket(device, "gradients bucket 0");
    const DeviceRange pack(device, "pack");
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"domain Tarantella", "begin gradients bucket 0", "begin pack", "end", "end"}));
}

}  // namespace
}  // namespace tnt
