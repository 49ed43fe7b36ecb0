// The machine code of pack for compute capability 9.0: 4 loads of 128 bits are issued before the first store.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

// The output of a command; its error output if it fails.
std::string output_of(const std::string& command, bool& ok) {
  FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), got);
  ok = pclose(pipe) == 0;
  return output;
}

// The part of a listing for the float32 kernel: from the line with its name to the next kernel.
std::string kernel_in(const std::string& listing, const std::string& kind) {
  const std::regex begin(kind + ".*pack_kernelIfE");
  std::istringstream lines(listing);
  std::string result;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, std::regex(kind))) inside = std::regex_search(line, begin);
    if (inside) result += line + "\n";
  }
  return result;
}

// The most loads in a row in the listing without a store among them.
int max_loads_before_a_store(const std::string& kernel, const std::regex& load, const std::regex& store) {
  int most = 0;
  int now = 0;
  std::istringstream lines(kernel);
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, load)) most = std::max(most, ++now);
    if (std::regex_search(line, store)) now = 0;
  }
  return most;
}

constexpr const char* nvcc = TNT_NVCC;
const std::string compile = std::string(nvcc) + " -std=c++17 -O3 -fmad=false " TNT_INCLUDES " " TNT_PACK_SOURCE;

TEST(VectorLoads, InPtx) {
  if (*nvcc == '\0') GTEST_SKIP() << "no CUDA compiler was found when CMake ran";
  bool ok = false;
  const std::string ptx = output_of(compile + " -arch=compute_90 -ptx -o -", ok);
  ASSERT_TRUE(ok) << ptx;
  const std::string kernel = kernel_in(ptx, "\\.entry");
  EXPECT_GE(max_loads_before_a_store(kernel, std::regex("ld\\.global\\S*\\.v4\\.u32"), std::regex("st\\.global")), 4);
}

TEST(VectorLoads, InMachineCode) {
  if (*nvcc == '\0') GTEST_SKIP() << "no CUDA compiler was found when CMake ran";
  bool ok = false;
  output_of("cuobjdump --version && nvdisasm --version", ok);
  if (!ok) GTEST_SKIP() << "no cuobjdump and nvdisasm in PATH";
  const std::string cubin = ::testing::TempDir() + "tnt_pack.cubin";
  const std::string error = output_of(compile + " -arch=sm_90 -cubin -o " + cubin, ok);
  ASSERT_TRUE(ok) << error;
  const std::string sass = output_of("cuobjdump -sass " + cubin, ok);
  ASSERT_TRUE(ok) << sass;
  std::remove(cubin.c_str());
  const std::string kernel = kernel_in(sass, "Function :");
  EXPECT_GE(max_loads_before_a_store(kernel, std::regex("LDG\\.E\\S*\\.128"), std::regex("STG")), 4);
}

}  // namespace
