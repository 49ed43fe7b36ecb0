// The point-to-point messages of a communicator that ops have started and not finished, and what a rank does between them, for
// the timeline.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tarantella/tarantella.h"
#include "tensorflow_c.h"

namespace tnt_tensorflow {

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

struct WorkDeleter {
  void operator()(tnt_work* work) const {
    tnt_work_wait(work, -1);  // the library uses the tensor until then; if the job has ended, that is soon
    tnt_work_destroy(work);
  }
};
using Work = std::unique_ptr<tnt_work, WorkDeleter>;

// Says which message a tensor is. It travels before the tensor, and the receiver compares it with what it expects: a tensor in
// the place of another one of its size would otherwise be wrong numbers and no word.
struct Label {
  std::int64_t step = 0;         // of the sender, or of the receiver when it began to wait
  std::array<char, 120> text{};  // zeros after its end

  bool operator==(const Label&) const = default;
};

// A tensor stays alive while the library reads or writes it: TensorFlow frees those of a step that fails.
class Messages {
 public:
  // A step begins. Gives TNT_ABORTED if the one before has not come to its end: what it has sent would be taken for this
  // step's.
  tnt_status_t step_begins();
  // Starts to send a tensor with a label of this text. Sends that have ended well are forgotten here, so that their tensors are
  // freed soon.
  tnt_status_t send(tnt_comm_t comm, Tensor tensor, int to, const std::array<char, 120>& label);
  // Waits for all sends. A step ends.
  tnt_status_t wait_for_sends();
  // Starts to receive into the tensor, which is known by the id until it is waited for.
  tnt_status_t receive(tnt_comm_t comm, std::int64_t id, Tensor tensor, int from, const std::array<char, 120>& label);
  // Waits until the tensor of this id is received. If another message came, gives TNT_MISMATCH and says which. The wait is a
  // span of the timeline.
  tnt_status_t wait(std::int64_t id, std::string* mismatch);

  // A rank computes one task after another. Each is a span of the timeline, from the end of the one before, or from the arrival
  // of the last message that it needs, to its own end.
  void task_begins() noexcept { task_begin_ns_ = tnt_clock_ns(); }
  void task_ended(const char* name);

 private:
  struct Pending {
    Tensor tensor;                    // outlives the work
    std::unique_ptr<Label[]> labels;  // as well: the one that travels and, of a receive, the one that is expected
    int from = 0;
    Work label_work, work;
  };
  std::mutex mutex_;
  std::int64_t step_ = 1;
  std::vector<Pending> sends_;
  std::map<std::int64_t, Pending> receives_;
  std::atomic<std::int64_t> task_begin_ns_{0};
};

}  // namespace tnt_tensorflow
