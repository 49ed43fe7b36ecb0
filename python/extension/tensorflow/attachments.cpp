#include "attachments.hpp"

namespace tnt_tensorflow {
namespace {

struct Table {
  std::mutex mutex;
  std::int64_t last_id = 0;
  std::map<std::int64_t, std::shared_ptr<Attachment>> entries;
};

// Never destroyed: TensorFlow's threads may still run when the process ends.
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

}  // namespace

void Attachment::hold(std::int64_t bucket, std::vector<Tensor> tensors) {
  const std::scoped_lock lock(mutex_);
  held_[bucket] = std::move(tensors);
}

void Attachment::release(std::int64_t bucket) {
  const std::scoped_lock lock(mutex_);
  held_.erase(bucket);
}

std::shared_ptr<Attachment> find_attachment(std::int64_t id) {
  const std::scoped_lock lock(table().mutex);
  const auto found = table().entries.find(id);
  return found == table().entries.end() ? nullptr : found->second;
}

}  // namespace tnt_tensorflow

std::int64_t tnt_tensorflow_attach(tnt_reducer_t reducer) {
  using tnt_tensorflow::Attachment;
  auto& table = tnt_tensorflow::table();
  const std::scoped_lock lock(table.mutex);
  table.entries[++table.last_id] = std::make_shared<Attachment>(reducer);
  return table.last_id;
}

void tnt_tensorflow_detach(std::int64_t id) {
  auto& table = tnt_tensorflow::table();
  const std::scoped_lock lock(table.mutex);
  table.entries.erase(id);
}
