// A HIP runtime without GPUs, under the name of libamdhip64.so: streams run their work at once, the devices' memory is the
// host's, and kernels are only counted. As HIP it has a current device for each thread, which begins as device 0.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tnt::testing {

struct Launch {
  std::string kernel;  // mangled
  int device;
  unsigned blocks;
  unsigned threads;
  void* stream;
};

class FakeHip {
 public:
  static void reset(int devices);
  static void begin_capture();                             // of all streams into one graph
  static void end_capture();                               // and destroys the graph
  [[nodiscard]] static std::vector<std::string> misuse();  // what HIP would refuse, or would do on another device
  [[nodiscard]] static std::vector<Launch> launches();
  [[nodiscard]] static std::size_t kernels();  // those of all libraries in the process
  [[nodiscard]] static std::size_t loaded_kernels(int device);
  [[nodiscard]] static std::size_t allocations();          // that were not released
  [[nodiscard]] static std::vector<void*> streams_used();  // by copies
  [[nodiscard]] static int last_error();                   // of this thread; 0: none
};

}  // namespace tnt::testing
