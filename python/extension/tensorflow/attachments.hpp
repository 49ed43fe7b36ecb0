// Which reducer an op's attribute means, and the tensors that a reducer still writes into.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tarantella/tarantella.h"
#include "tensorflow_c.h"

namespace tnt_tensorflow {

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

// A reducer as ops know it. Graphs outlive reducers: an op that finds its reducer gone fails with a sentence.
class Attachment {
 public:
  explicit Attachment(tnt_reducer_t reducer) : reducer_(reducer) {}

  [[nodiscard]] tnt_reducer_t reducer() const { return reducer_; }

  // Keeps what a started bucket reads and writes alive until it is finished, as TensorFlow frees the tensors of a step that
  // fails or is cancelled between Start and Finish.
  void hold(std::int64_t bucket, std::vector<Tensor> tensors);
  void release(std::int64_t bucket);

 private:
  tnt_reducer_t reducer_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<Tensor>> held_;
};

// nullptr if the id was never given out or has been detached.
[[nodiscard]] std::shared_ptr<Attachment> find_attachment(std::int64_t id);

}  // namespace tnt_tensorflow

extern "C" {
// For the Python package. attach: an id for the ops' attribute `reducer`, never used twice in a process. detach: after
// tnt_reducer_destroy, when no step runs.
TNT_EXPORT std::int64_t tnt_tensorflow_attach(tnt_reducer_t reducer);
TNT_EXPORT void tnt_tensorflow_detach(std::int64_t id);
}
