// The part of TensorFlow's C API that the ops of a bucket use, in one process: registration, tensors, and a context in which a
// kernel runs.
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

// A registered kernel.
struct Kernel {
  std::string op;
  std::string device;
  void* (*create)(TF_OpKernelConstruction*) = nullptr;
  void (*compute)(void*, TF_OpKernelContext*) = nullptr;
  void (*destroy)(void*) = nullptr;
  std::vector<std::string> in_host_memory;
};

[[nodiscard]] const std::map<std::string, Kernel>& kernels();
[[nodiscard]] int live_tensors();  // TF_Tensors that have not been deleted

// One op of a graph, placed on a device.
class Node {
 public:
  Node(const std::string& kernel, std::int64_t reducer, std::int64_t bucket, std::vector<std::int64_t> tensors);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  // Somebody else uses the inputs: outputs get memory of their own.
  void share_inputs() noexcept { inputs_shared_ = true; }

  // Runs the kernel. Returns "" or the error; outputs and inputs are buffers.
  [[nodiscard]] std::string run(const std::vector<std::shared_ptr<Buffer>>& inputs);
  [[nodiscard]] const std::vector<std::shared_ptr<Buffer>>& outputs() const noexcept { return outputs_; }
  [[nodiscard]] const void* context() const noexcept { return context_; }  // of the last run

 private:
  const Kernel* kernel_;
  void* state_;
  const void* context_ = nullptr;
  bool inputs_shared_ = false;
  std::vector<std::shared_ptr<Buffer>> outputs_;
};

}  // namespace fake_tensorflow
