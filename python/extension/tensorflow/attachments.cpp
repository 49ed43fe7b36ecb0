#include "attachments.hpp"

#include <atomic>
#include <iterator>

namespace tnt_tensorflow {
namespace {

template <typename Entry>
struct Table {
  std::mutex mutex;
  std::int64_t last_id = 0;
  std::map<std::int64_t, std::shared_ptr<Entry>> entries;
};

// Never destroyed: TensorFlow's threads may still run at exit.
template <typename Entry>
Table<Entry>& table() {
  static auto* instance = new Table<Entry>;
  return *instance;
}

template <typename Entry, typename... Arguments>
std::int64_t attach(Arguments... arguments) {
  auto& entries = table<Entry>();
  const std::scoped_lock lock(entries.mutex);
  entries.entries[++entries.last_id] = std::make_shared<Entry>(arguments...);
  return entries.last_id;
}

template <typename Entry>
void detach(std::int64_t id) {
  auto& entries = table<Entry>();
  const std::scoped_lock lock(entries.mutex);
  entries.entries.erase(id);
}

template <typename Entry>
std::shared_ptr<Entry> find(std::int64_t id) {
  auto& entries = table<Entry>();
  const std::scoped_lock lock(entries.mutex);
  const auto found = entries.entries.find(id);
  return found == entries.entries.end() ? nullptr : found->second;
}

std::atomic<void* (*)(void*)> tell_stream{nullptr};

}  // namespace

void Attachment::hold(std::int64_t bucket, std::vector<Tensor> tensors) {
  const std::scoped_lock lock(mutex_);
  std::vector<Tensor>& held = held_[bucket];
  held.insert(held.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
}

void Attachment::release(std::int64_t bucket) {
  const std::scoped_lock lock(mutex_);
  held_.erase(bucket);
}

std::shared_ptr<Attachment> find_attachment(std::int64_t id) { return find<Attachment>(id); }

void CommunicatorAttachment::count(std::int64_t tensor, const SparseCounts& more) {
  const std::scoped_lock lock(mutex_);
  SparseCounts& counts = counts_[tensor];
  counts.sparse += more.sparse;
  counts.dense += more.dense;
  counts.bytes += more.bytes;
}

SparseCounts CommunicatorAttachment::counts(std::int64_t tensor) {
  const std::scoped_lock lock(mutex_);
  return counts_[tensor];
}

std::shared_ptr<CommunicatorAttachment> find_communicator(std::int64_t id) { return find<CommunicatorAttachment>(id); }

tnt_stream_t stream_of(TF_OpKernelContext* context) {
  auto* function = tell_stream.load(std::memory_order_acquire);
  return function == nullptr ? nullptr : function(context);
}

}  // namespace tnt_tensorflow

std::int64_t tnt_tensorflow_attach(tnt_reducer_t reducer, int on_device) {
  using tnt_tensorflow::Where;
  return tnt_tensorflow::attach<tnt_tensorflow::Attachment>(reducer, on_device != 0 ? Where::device : Where::host);
}
void tnt_tensorflow_detach(std::int64_t id) { tnt_tensorflow::detach<tnt_tensorflow::Attachment>(id); }

std::int64_t tnt_tensorflow_attach_communicator(tnt_comm_t comm) {
  return tnt_tensorflow::attach<tnt_tensorflow::CommunicatorAttachment>(comm);
}
void tnt_tensorflow_detach_communicator(std::int64_t id) { tnt_tensorflow::detach<tnt_tensorflow::CommunicatorAttachment>(id); }

void tnt_tensorflow_sparse_counts(std::int64_t communicator, std::int64_t tensor, std::int64_t counts[3]) {
  const auto found = tnt_tensorflow::find_communicator(communicator);
  const auto sums = found ? found->counts(tensor) : tnt_tensorflow::SparseCounts{};
  counts[0] = sums.sparse;
  counts[1] = sums.dense;
  counts[2] = sums.bytes;
}

void tnt_tensorflow_set_stream_of(void* (*function)(void* context)) {
  tnt_tensorflow::tell_stream.store(function, std::memory_order_release);
}
