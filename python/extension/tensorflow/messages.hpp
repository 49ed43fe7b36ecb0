// The point-to-point messages of a communicator that ops have started and not finished.
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

struct WorkDeleter {
  void operator()(tnt_work* work) const {
    tnt_work_wait(work, -1);  // the library uses the tensor until then; if the job has ended, that is soon
    tnt_work_destroy(work);
  }
};
using Work = std::unique_ptr<tnt_work, WorkDeleter>;

// A tensor stays alive while the library reads or writes it: TensorFlow frees those of a step that fails.
class Messages {
 public:
  // Starts to send. Sends that have ended well are forgotten here, so that their tensors are freed soon.
  tnt_status_t send(tnt_comm_t comm, Tensor tensor, int to);
  // Waits for all sends.
  tnt_status_t wait_for_sends();
  // Starts to receive into the tensor, which is known by the id until it is waited for.
  tnt_status_t receive(tnt_comm_t comm, std::int64_t id, Tensor tensor, int from);
  // Waits until the tensor of this id is received.
  tnt_status_t wait(std::int64_t id);

 private:
  struct Pending {
    Tensor tensor;  // outlives the work
    Work work;
  };
  std::mutex mutex_;
  std::vector<Pending> sends_;
  std::map<std::int64_t, Pending> receives_;
};

}  // namespace tnt_tensorflow
