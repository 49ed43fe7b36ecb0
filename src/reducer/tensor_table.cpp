#include "reducer/tensor_table.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tnt {
namespace {

bool same(const gpu::TensorArgument& a, const gpu::TensorArgument& b) noexcept {
  return a.in == b.in && a.out == b.out && a.scale == b.scale;
}

}  // namespace

TensorTable::TensorTable(Device& device, std::size_t n_tensors, StreamHandle stream)
    : device_(device),
      arguments_(n_tensors),
      tables_(device, (1 + captures) * bytes(), stream),
      pinned_(device, (versions + captures) * bytes()) {
  auto* pinned = static_cast<gpu::TensorArgument*>(pinned_.get());
  auto* table = static_cast<gpu::TensorArgument*>(tables_.get());
  for (std::size_t i = 0; i < versions; ++i) versions_.push_back({pinned + i * n_tensors, Event(device)});
  for (std::size_t i = 0; i < captures; ++i) {
    captured_.push_back({pinned + (versions + i) * n_tensors, table + (1 + i) * n_tensors, {}});
  }
}

void TensorTable::set(std::size_t position, const gpu::TensorArgument& argument) {
  if (same(arguments_[position], argument)) return;
  arguments_[position] = argument;
  changed_ = true;
}

const gpu::TensorArgument* TensorTable::upload(StreamHandle stream, bool capturing, const std::function<void()>& wait) {
  if (capturing) return upload_captured(stream);
  auto* table = static_cast<gpu::TensorArgument*>(tables_.get());
  if (!changed_) return table;
  Version& version = versions_[next_];
  next_ = (next_ + 1) % versions;
  while (version.in_use && !version.uploaded.completed()) wait();
  std::memcpy(version.pinned, arguments_.data(), bytes());
  device_.copy(table, version.pinned, bytes(), stream);
  version.uploaded.record(stream);
  version.in_use = true;
  changed_ = false;
  return table;
}

std::vector<TensorTable::Captured>::iterator TensorTable::find_captured() {
  return std::find_if(captured_.begin(), captured_.end(), [&](const Captured& captured) {
    return captured.arguments.empty() || std::equal(arguments_.begin(), arguments_.end(), captured.arguments.begin(), same);
  });
}

void TensorTable::check_capture() {
  if (find_captured() != captured_.end()) return;
  fail(TNT_UNSUPPORTED,
       "graphs with {} different sets of gradient addresses or scales were captured already: capture again with the "
       "addresses of one of them, or make another reducer",
       captures);
}

// A graph contains the upload, so its pinned memory must never be written again.
const gpu::TensorArgument* TensorTable::upload_captured(StreamHandle stream) {
  check_capture();
  const auto captured = find_captured();
  captured->arguments = arguments_;
  std::memcpy(captured->pinned, arguments_.data(), bytes());
  device_.copy(captured->table, captured->pinned, bytes(), stream);
  return captured->table;
}

}  // namespace tnt
