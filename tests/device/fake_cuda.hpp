// A CUDA runtime and driver without devices, for src/device/cuda: which thread has which context, and which devices have one.
// As in CUDA, a call that needs a context and finds none creates one on the thread's current device, which is device 0 unless
// the thread has chosen another.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tnt::testing {

class FakeCuda {
 public:
  static void reset(int devices);                              // no device has a context
  [[nodiscard]] static std::set<int> devices_with_contexts();  // since the reset
  [[nodiscard]] static std::vector<std::string> misuse();      // what CUDA would refuse
  static void begin_capture();                                 // of all streams into one graph
  static void destroy_graph();
};

}  // namespace tnt::testing
