// As much of TensorFlow's C API as the ops of a bucket use, in one process: what they register, tensors, and a context in
// which a kernel runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "python/extension/tensorflow/tensorflow_c.h"

namespace fake_tensorflow {

struct Buffer {
  std::vector<double> data;
};

// A kernel as it was registered.
struct Kernel {
  std::string op;
  std::string device;
  void* (*create)(TF_OpKernelConstruction*) = nullptr;
  void (*compute)(void*, TF_OpKernelContext*) = nullptr;
  void (*destroy)(void*) = nullptr;
  std::vector<std::string> in_host_memory;
};

[[nodiscard]] const std::map<std::string, Kernel>& kernels();
[[nodiscard]] int live_tensors();  // TF_Tensors that nobody has deleted

// One op of a graph, placed on a device.
class Node {
 public:
  Node(const std::string& kernel, std::int64_t reducer, std::int64_t bucket, std::vector<std::int64_t> tensors);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  // Runs the kernel. "" or what it failed with; outputs and inputs are buffers.
  [[nodiscard]] std::string run(const std::vector<std::shared_ptr<Buffer>>& inputs);
  [[nodiscard]] const std::vector<std::shared_ptr<Buffer>>& outputs() const noexcept { return outputs_; }
  [[nodiscard]] const void* context() const noexcept { return context_; }  // of the last run

 private:
  const Kernel* kernel_;
  void* state_;
  const void* context_ = nullptr;
  std::vector<std::shared_ptr<Buffer>> outputs_;
};

}  // namespace fake_tensorflow
