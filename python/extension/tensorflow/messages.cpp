#include "messages.hpp"

#include <cstring>
#include <utility>

namespace tnt_tensorflow {

namespace {

std::string text_of(const Label& label) {
  return std::string(label.text.data(), strnlen(label.text.data(), label.text.size()));
}

std::string described(const Label& label) { return text_of(label) + " in step " + std::to_string(label.step); }

}  // namespace

tnt_status_t Messages::step_begins() {
  task_begins();
  const std::scoped_lock lock(mutex_);
  return sends_.empty() && receives_.empty() ? TNT_SUCCESS : TNT_ABORTED;
}

tnt_status_t Messages::send(tnt_comm_t comm, Tensor tensor, int to, const std::array<char, 120>& label) {
  const std::scoped_lock lock(mutex_);  // until both are started: no other message comes between a label and its tensor
  auto labels = std::make_unique<Label[]>(1);
  labels[0] = {.step = step_, .text = label};
  tnt_work_t work = nullptr;
  tnt_status_t started = tnt_send(comm, labels.get(), sizeof(Label), TNT_UINT8, to, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  Work label_work(std::exchange(work, nullptr));
  started = tnt_send(comm, TF_TensorData(tensor.get()), TF_TensorByteSize(tensor.get()), TNT_UINT8, to, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  std::erase_if(sends_, [](const Pending& sent) {
    int finished = 0;  // one that failed stays, for wait_for_sends
    return tnt_work_test(sent.work.get(), &finished) == TNT_SUCCESS && finished != 0;
  });
  sends_.push_back(
      {.tensor = std::move(tensor), .labels = std::move(labels), .label_work = std::move(label_work), .work = Work(work)});
  return TNT_SUCCESS;
}

tnt_status_t Messages::wait_for_sends() {
  std::vector<Pending> sends;
  {
    const std::scoped_lock lock(mutex_);
    sends.swap(sends_);
    ++step_;
  }
  for (const Pending& sent : sends) {
    const tnt_status_t waited = tnt_work_wait(sent.work.get(), -1);
    if (waited != TNT_SUCCESS) return waited;
  }
  return TNT_SUCCESS;
}

tnt_status_t Messages::receive(tnt_comm_t comm, std::int64_t id, Tensor tensor, int from, const std::array<char, 120>& label) {
  const std::scoped_lock lock(mutex_);
  auto labels = std::make_unique<Label[]>(2);
  labels[1] = {.step = step_, .text = label};
  tnt_work_t work = nullptr;
  tnt_status_t started = tnt_recv(comm, labels.get(), sizeof(Label), TNT_UINT8, from, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  Work label_work(std::exchange(work, nullptr));
  started = tnt_recv(comm, TF_TensorData(tensor.get()), TF_TensorByteSize(tensor.get()), TNT_UINT8, from, nullptr, &work);
  if (started != TNT_SUCCESS) return started;
  receives_.insert_or_assign(id, Pending{.tensor = std::move(tensor),
                                         .labels = std::move(labels),
                                         .from = from,
                                         .label_work = std::move(label_work),
                                         .work = Work(work)});
  return TNT_SUCCESS;
}

tnt_status_t Messages::wait(std::int64_t id, std::string* mismatch) {
  Pending pending;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = receives_.find(id);
    if (found == receives_.end()) return TNT_INVALID_ARGUMENT;
    pending = std::move(found->second);
    receives_.erase(found);
  }
  const std::int64_t begin_ns = tnt_clock_ns();
  tnt_status_t waited = tnt_work_wait(pending.label_work.get(), -1);
  if (waited != TNT_SUCCESS) return waited;
  if (pending.labels[0] != pending.labels[1]) {
    *mismatch = "the pipeline expected " + described(pending.labels[1]) + " from rank " + std::to_string(pending.from) +
                ", and got " + described(pending.labels[0]) + ": all ranks must run the same program and version";
    return TNT_MISMATCH;
  }
  waited = tnt_work_wait(pending.work.get(), -1);
  if (waited != TNT_SUCCESS) return waited;
  const std::string name =
      text_of(pending.labels[0]) + ", " + std::to_string(TF_TensorByteSize(pending.tensor.get())) + " bytes";
  task_begins();
  return tnt_trace_span("messages", name.c_str(), begin_ns, task_begin_ns_);
}

void Messages::task_ended(const char* name) {
  const std::int64_t end_ns = tnt_clock_ns();
  (void)tnt_trace_span("pipeline", name, task_begin_ns_.exchange(end_ns), end_ns);  // fails only where the job has ended
}

}  // namespace tnt_tensorflow
