#include "kernels/cuda/cuda_call.hpp"

#include <string_view>

#include "common/error.hpp"
#include "kernels/cuda/cuda_advice.hpp"

namespace tnt {
void fail_cuda(cudaError_t code, const char* tried, const char* file, int line) {
  static_cast<void>(cudaGetLastError());
  const std::string_view path = file;
  fail(TNT_SYSTEM, "{} failed at {}:{}: {} ({}){}", tried, path.substr(path.rfind('/') + 1), line, cudaGetErrorString(code),
       cudaGetErrorName(code), cuda_advice(code));
}

}  // namespace tnt
