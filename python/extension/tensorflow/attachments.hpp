// Maps the attribute of an op to its reducer, and holds the tensors that a reducer still writes to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "messages.hpp"

namespace tnt_tensorflow {

// The memory of a reducer's gradients: of the host, or of the GPU that this rank's TensorFlow uses.
enum class Where { host, device };

// A reducer for ops. Graphs outlive reducers: an op whose reducer is gone fails with a message.
class Attachment {
 public:
  Attachment(tnt_reducer_t reducer, Where where) : reducer_(reducer), where_(where) {}

  [[nodiscard]] tnt_reducer_t reducer() const { return reducer_; }
  [[nodiscard]] Where where() const { return where_; }

  // Keeps the buffers of a started bucket alive until it is finished, because TensorFlow frees the tensors of a step that fails
  // or is cancelled between Start and Finish. A later step that begins nevertheless does not release them.
  void hold(std::int64_t bucket, std::vector<Tensor> tensors);
  void release(std::int64_t bucket);

 private:
  tnt_reducer_t reducer_;
  Where where_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<Tensor>> held_;
};

// nullptr for an unknown or detached id.
[[nodiscard]] std::shared_ptr<Attachment> find_attachment(std::int64_t id);

// How often a sparse gradient was reduced as rows and as a dense table.
struct SparseCounts {
  std::int64_t sparse = 0;
  std::int64_t dense = 0;
  std::int64_t bytes = 0;  // bytes that this rank passed to collectives
};

// A communicator for ops. Its collectives block, so the graph orders them (tarantella/keras/reduction/graph_order.py).
class CommunicatorAttachment {
 public:
  explicit CommunicatorAttachment(tnt_comm_t comm) : comm_(comm) {}

  [[nodiscard]] tnt_comm_t comm() const { return comm_; }

  [[nodiscard]] Messages& messages() { return messages_; }

  void count(std::int64_t tensor, const SparseCounts& more);
  [[nodiscard]] SparseCounts counts(std::int64_t tensor);

 private:
  tnt_comm_t comm_;
  Messages messages_;
  std::mutex mutex_;
  std::map<std::int64_t, SparseCounts> counts_;
};

[[nodiscard]] std::shared_ptr<CommunicatorAttachment> find_communicator(std::int64_t id);

// The stream on which TensorFlow runs a GPU kernel. nullptr if no function was set.
[[nodiscard]] tnt_stream_t stream_of(TF_OpKernelContext* context);

}  // namespace tnt_tensorflow

extern "C" {
// For the Python package. attach returns an id for the ops' attribute `reducer`, unique in the process; on_device: not 0 for a
// reducer of GPU memory. detach: after tnt_reducer_destroy, while no step runs.
TNT_EXPORT std::int64_t tnt_tensorflow_attach(tnt_reducer_t reducer, int on_device);
TNT_EXPORT void tnt_tensorflow_detach(std::int64_t id);

// The same for the attribute `communicator`. Call detach before tnt_comm_destroy.
TNT_EXPORT std::int64_t tnt_tensorflow_attach_communicator(tnt_comm_t comm);
TNT_EXPORT void tnt_tensorflow_detach_communicator(std::int64_t id);

// counts: of a tensor's sparse reductions: the numbers of sparse and dense ones, and their bytes.
TNT_EXPORT void tnt_tensorflow_sparse_counts(std::int64_t communicator, std::int64_t tensor, std::int64_t counts[3]);

// Before the first step on a GPU: sets the function of gpu_stream.cpp.
TNT_EXPORT void tnt_tensorflow_set_stream_of(void* (*function)(void* context));
}
