// The operations of a small perceptron on the fake device, for float32. TensorFlow runs others on the CPU.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory.hpp"
#include "order.hpp"
#include "stream.hpp"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_tensor.h"

namespace {

using fake_device::bytes_of;

float* numbers_of(const TF_Tensor* tensor) {
  return TF_TensorElementCount(tensor) == 0 ? nullptr : reinterpret_cast<float*>(bytes_of(TF_TensorData(tensor)));
}

// The inputs and the output of one call, whose work runs on the stream of its device.
class Call {
 public:
  explicit Call(TF_OpKernelContext* context) : context_{context}, status_{TF_NewStatus()} {}

  ~Call() {
    for (TF_Tensor* const tensor : tensors_) TF_DeleteTensor(tensor);
    TF_DeleteStatus(status_);
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const TF_Tensor* input(int index) {
    TF_Tensor* tensor = nullptr;
    TF_GetInput(context_, index, &tensor, status_);
    tensors_.push_back(tensor);
    return tensor;
  }

  float* output(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    tensors_.push_back(
        TF_AllocateOutput(context_, 0, TF_FLOAT, shape.data(), static_cast<int>(shape.size()), count * sizeof(float), status_));
    return numbers_of(tensors_.back());
  }

  void run(std::function<void()> work) {
    SP_Stream_st* const stream = TF_GetStream(context_, status_);
    if (TF_GetCode(status_) != TF_OK) return TF_OpKernelContext_Failure(context_, status_);
    stream->enqueue(std::move(work));
  }

 private:
  TF_OpKernelContext* context_;
  TF_Status* status_;
  std::vector<TF_Tensor*> tensors_;
};

struct Transposed {
  bool a, b;
};

void* mat_mul_attributes(TF_OpKernelConstruction* construction) {
  TF_Status* const status = TF_NewStatus();
  TF_Bool a = 0, b = 0;
  TF_OpKernelConstruction_GetAttrBool(construction, "transpose_a", &a, status);
  TF_OpKernelConstruction_GetAttrBool(construction, "transpose_b", &b, status);
  TF_DeleteStatus(status);
  return new Transposed{a != 0, b != 0};
}

void mat_mul(void* attributes, TF_OpKernelContext* context) {
  const Transposed transposed = *static_cast<Transposed*>(attributes);
  Call call{context};
  const TF_Tensor *const a = call.input(0), *const b = call.input(1);
  const std::int64_t rows = TF_Dim(a, transposed.a ? 1 : 0), inner = TF_Dim(a, transposed.a ? 0 : 1);
  const std::int64_t columns = TF_Dim(b, transposed.b ? 0 : 1);
  float* const c = call.output({rows, columns});
  call.run([=, x = numbers_of(a), y = numbers_of(b)] {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        float sum = 0;
        for (std::int64_t at = 0; at < inner; ++at) {
          sum += x[transposed.a ? at * rows + row : row * inner + at] *
                 y[transposed.b ? column * inner + at : at * columns + column];
        }
        c[row * columns + column] = sum;
      }
    }
  });
}

void bias_add(void*, TF_OpKernelContext* context) {
  Call call{context};
  const TF_Tensor *const x = call.input(0), *const bias = call.input(1);
  const std::int64_t rows = TF_Dim(x, 0), columns = TF_Dim(x, 1);
  float* const y = call.output({rows, columns});
  call.run([=, from = numbers_of(x), added = numbers_of(bias)] {
    for (std::int64_t at = 0; at < rows * columns; ++at) y[at] = from[at] + added[at % columns];
  });
}

void bias_add_grad(void*, TF_OpKernelContext* context) {
  Call call{context};
  const TF_Tensor* const gradient = call.input(0);
  const std::int64_t rows = TF_Dim(gradient, 0), columns = TF_Dim(gradient, 1);
  float* const sums = call.output({columns});
  call.run([=, from = numbers_of(gradient)] {
    fake_device::gradient_runs(static_cast<std::uint64_t>(columns) * sizeof(float));
    std::fill_n(sums, columns, 0.0F);
    for (std::int64_t at = 0; at < rows * columns; ++at) sums[at % columns] += from[at];
  });
}

void relu(void*, TF_OpKernelContext* context) {
  Call call{context};
  const TF_Tensor* const x = call.input(0);
  float* const y = call.output({TF_Dim(x, 0), TF_Dim(x, 1)});
  call.run([=, from = numbers_of(x), count = TF_TensorElementCount(x)] {
    fake_device::forward_runs();
    for (std::int64_t at = 0; at < count; ++at) y[at] = std::max(from[at], 0.0F);
  });
}

void relu_grad(void*, TF_OpKernelContext* context) {
  Call call{context};
  const TF_Tensor *const gradient = call.input(0), *const features = call.input(1);
  float* const y = call.output({TF_Dim(features, 0), TF_Dim(features, 1)});
  call.run([=, from = numbers_of(gradient), of = numbers_of(features), count = TF_TensorElementCount(features)] {
    for (std::int64_t at = 0; at < count; ++at) y[at] = of[at] > 0 ? from[at] : 0;
  });
}

using Compute = void (*)(void*, TF_OpKernelContext*);

void add_kernel(const char* operation, Compute compute, void* (*create)(TF_OpKernelConstruction*) = nullptr,
                void (*destroy)(void*) = nullptr) {
  TF_Status* const status = TF_NewStatus();
  TF_KernelBuilder* const builder = TF_NewKernelBuilder(operation, "TNTFAKE", create, compute, destroy);
  TF_KernelBuilder_TypeConstraint(builder, "T", TF_FLOAT, status);
  TF_RegisterKernelBuilder(operation, builder, status);
  TF_DeleteStatus(status);
}

}  // namespace

extern "C" void TF_InitKernel() {
  add_kernel("MatMul", mat_mul, mat_mul_attributes, [](void* attributes) { delete static_cast<Transposed*>(attributes); });
  add_kernel("BiasAdd", bias_add);
  add_kernel("BiasAddGrad", bias_add_grad);
  add_kernel("Relu", relu);
  add_kernel("ReluGrad", relu_grad);
}
