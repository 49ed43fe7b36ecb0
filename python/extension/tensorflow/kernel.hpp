// What the kernels of all our ops share: statuses, errors with a sentence that Python finds again, inputs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "attachments.hpp"

namespace tnt_tensorflow {

class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  ~Status() { TF_DeleteStatus(status_); }
  [[nodiscard]] TF_Status* get() const { return status_; }
  [[nodiscard]] bool ok() const { return TF_GetCode(status_) == TF_OK; }

 private:
  TF_Status* status_;
};

// Python finds the sentence in TensorFlow's message by these marks (tarantella/errors.py).
inline void fail(TF_OpKernelContext* context, const char* status_name, const std::string& sentence) {
  const Status status;
  TF_SetStatus(status.get(), TF_INTERNAL,
               ("[tarantella " + std::string(status_name) + "] " + sentence + " [/tarantella]").c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

inline void fail(TF_OpKernelContext* context, tnt_status_t status) { fail(context, tnt_status_name(status), tnt_last_error()); }

inline bool passed(TF_OpKernelContext* context, const Status& status) {
  if (!status.ok()) TF_OpKernelContext_Failure(context, status.get());
  return status.ok();
}

inline Tensor input(TF_OpKernelContext* context, int index, const Status& status) {
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context, index, &tensor, status.get());
  return Tensor(tensor);
}

struct Dims {
  std::array<std::int64_t, 16> sizes{};
  int count = 0;
};

// status says so if the tensor has more dimensions than there is room for.
inline Dims dims_of(const TF_Tensor* tensor, const Status& status) {
  Dims dims{.sizes = {}, .count = TF_NumDims(tensor)};
  if (dims.count > static_cast<int>(dims.sizes.size())) {
    TF_SetStatus(status.get(), TF_INVALID_ARGUMENT, "a tensor has more than 16 dimensions");
    return dims;
  }
  for (int i = 0; i < dims.count; ++i) dims.sizes[static_cast<std::size_t>(i)] = TF_Dim(tensor, i);
  return dims;
}

}  // namespace tnt_tensorflow
