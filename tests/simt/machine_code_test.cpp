// The machine code of pack and unpack for compute capability 9.0. The lean kernels keep everything in registers, few enough of
// them for the blocks that are meant to share a multiprocessor, and issue four loads of 16 bytes before the first store.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace {

// The output of a command, error output included.
std::string output_of(const std::string& command, bool& ok) {
  FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), got);
  ok = pclose(pipe) == 0;
  return output;
}

struct Usage {
  int registers = -1;
  std::string local_memory;  // ptxas' line about the stack and spills
};

constexpr const char* no_local_memory = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";

// Of each kernel, from the output of ptxas -v.
std::map<std::string, Usage> usage_in(const std::string& output) {
  std::map<std::string, Usage> all;
  std::string kernel;
  std::istringstream lines(output);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, found, std::regex("Compiling entry function '(\\w+)'"))) kernel = found[1];
    if (std::regex_search(line, found, std::regex("\\d+ bytes stack frame.*"))) all[kernel].local_memory = found[0];
    if (std::regex_search(line, found, std::regex("Used (\\d+) registers"))) all[kernel].registers = std::stoi(found[1]);
  }
  return all;
}

// The most loads in a row in a kernel's listing without a store among them.
int max_loads_before_a_store(const std::string& listing, const std::string& kernel) {
  const std::regex load("LDG\\.E\\S*\\.128");
  int most = 0;
  int now = 0;
  bool inside = false;
  std::istringstream lines(listing);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Function :") != std::string::npos) inside = line.find(kernel) != std::string::npos;
    if (!inside) continue;
    if (std::regex_search(line, load)) most = std::max(most, ++now);
    if (line.find("STG") != std::string::npos) now = 0;
  }
  return most;
}

void check_lean_kernels(const std::string& source, std::size_t kernels) {
  constexpr const char* nvcc = TNT_NVCC;
  if (*nvcc == '\0') GTEST_SKIP() << "no CUDA compiler was found when CMake ran";
  const std::string cubin = ::testing::TempDir() + "tnt_" + source + ".cubin";
  bool ok = false;
  const std::string output = output_of(std::string(nvcc) + " -std=c++17 -O3 -fmad=false " TNT_INCLUDES " " TNT_KERNELS +
                                           source + " -arch=sm_90 -cubin -Xptxas -v -o " + cubin,
                                       ok);
  ASSERT_TRUE(ok) << output;
  const std::string listing = output_of("cuobjdump -sass " + cubin, ok);
  std::remove(cubin.c_str());
  std::size_t lean = 0;
  for (const auto& [name, usage] : usage_in(output)) {
    if (name.find("lean") == std::string::npos) continue;
    ++lean;
    EXPECT_EQ(usage.local_memory, no_local_memory) << name;
    if (name.find("lean_ring") != std::string::npos) continue;  // one block for each multiprocessor
    const bool scales_halves = name.find("Bfloat16ES") != std::string::npos || name.find("Float16ES") != std::string::npos;
    EXPECT_LE(usage.registers, scales_halves ? 48 : 32) << name;  // 5 or 8 blocks of 256 threads share 65,536
    if (ok && name.find("LeanCopy") != std::string::npos) {
      EXPECT_GE(max_loads_before_a_store(listing, name), 4) << name;
    }
  }
  EXPECT_EQ(lean, kernels);
  if (!ok) GTEST_SKIP() << "no cuobjdump in PATH: the loads were not counted";
}

TEST(MachineCode, LeanPackKeepsToItsRegisters) { check_lean_kernels("pack.cu", 18); }
TEST(MachineCode, LeanUnpackKeepsToItsRegisters) { check_lean_kernels("unpack.cu", 9); }

}  // namespace
