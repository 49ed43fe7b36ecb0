#include "messages.hpp"

#include <utility>

namespace tnt_tensorflow {

tnt_status_t Messages::send(tnt_comm_t comm, Tensor tensor, int to) {
  tnt_work_t work = nullptr;
  const tnt_status_t started =
      tnt_send(comm, TF_TensorData(tensor.get()), TF_TensorByteSize(tensor.get()), TNT_UINT8, to, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  const std::scoped_lock lock(mutex_);
  std::erase_if(sends_, [](const Pending& sent) {
    int finished = 0;  // one that failed stays, for wait_for_sends
    return tnt_work_test(sent.work.get(), &finished) == TNT_SUCCESS && finished != 0;
  });
  sends_.push_back({.tensor = std::move(tensor), .work = Work(work)});
  return TNT_SUCCESS;
}

tnt_status_t Messages::wait_for_sends() {
  std::vector<Pending> sends;
  {
    const std::scoped_lock lock(mutex_);
    sends.swap(sends_);
  }
  for (const Pending& sent : sends) {
    const tnt_status_t waited = tnt_work_wait(sent.work.get(), -1);
    if (waited != TNT_SUCCESS) return waited;
  }
  return TNT_SUCCESS;
}

tnt_status_t Messages::receive(tnt_comm_t comm, std::int64_t id, Tensor tensor, int from) {
  tnt_work_t work = nullptr;
  const tnt_status_t started =
      tnt_recv(comm, TF_TensorData(tensor.get()), TF_TensorByteSize(tensor.get()), TNT_UINT8, from, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  const std::scoped_lock lock(mutex_);
  receives_.insert_or_assign(id, Pending{.tensor = std::move(tensor), .work = Work(work)});
  return TNT_SUCCESS;
}

tnt_status_t Messages::wait(std::int64_t id) {
  Pending pending;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = receives_.find(id);
    if (found == receives_.end()) return TNT_INVALID_ARGUMENT;
    pending = std::move(found->second);
    receives_.erase(found);
  }
  return tnt_work_wait(pending.work.get(), -1);
}

}  // namespace tnt_tensorflow
