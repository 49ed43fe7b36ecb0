#include "reducer/device_arguments.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::size_t max_known_streams = 16;
constexpr std::size_t max_known_addresses = 16;  // for each tensor: of several graphs, and of an allocator that varies

}  // namespace

void DeviceArguments::check_stream(StreamHandle stream) {
  if (stream == nullptr) {
    fail(
        TNT_INVALID_ARGUMENT,
        "stream is NULL: gradients of {} lie on device {} and need the stream on which they are computed (cudaStreamLegacy for "
        "CUDA's default one)",
        name_, device_.index());
  }
  if (std::find(known_streams_.begin(), known_streams_.end(), stream) != known_streams_.end()) return;
  const int index = device_.device_of(stream);
  if (index != device_.index()) {
    fail(TNT_INVALID_ARGUMENT, "the stream is of device {}, the gradients of {} are on device {}", index, name_,
         device_.index());
  }
  if (is_default_stream(stream)) return;  // another stream for a thread with another current device
  if (known_streams_.size() == max_known_streams) known_streams_.erase(known_streams_.begin());
  known_streams_.push_back(stream);
}

void DeviceArguments::check_address(const void* memory, const char* what, const std::string& name) {
  const PointerAttributes attributes = device_.pointer_attributes(memory);
  if (attributes.kind == PointerAttributes::Kind::managed) return;
  if (attributes.kind != PointerAttributes::Kind::device) {
    fail(TNT_INVALID_ARGUMENT, "the {} of '{}' is host memory: it has to lie on device {}", what, name, device_.index());
  }
  if (attributes.device != device_.index()) {
    fail(TNT_INVALID_ARGUMENT, "the {} of '{}' lies on device {}, not on device {}", what, name, attributes.device,
         device_.index());
  }
}

// Looks up only new addresses, because a lookup takes as long as the rest of ready(). An address of this device stays one:
// CUDA gives host memory addresses of other ranges.
void DeviceArguments::check_memory(std::size_t tensor, const TensorView& view) {
  const TensorSpec& spec = plan_.tensors()[tensor];
  if (spec.count == 0) return;
  if (view.in == nullptr && view.scale != 0.0) fail(TNT_INVALID_ARGUMENT, "the gradient of '{}' is NULL", spec.name);
  if (accumulate_ && view.out != nullptr && view.out == view.in) {
    fail(TNT_INVALID_ARGUMENT, "the result of '{}' is its gradient: with accumulate it is another array, of float32",
         spec.name);
  }
  for (const auto& [memory, what] : {std::pair{view.in, "gradient"}, std::pair{static_cast<const void*>(view.out), "result"}}) {
    if (memory == nullptr || known_addresses_.contains(memory)) continue;
    check_address(memory, what, spec.name);
    if (known_addresses_.size() >= max_known_addresses * plan_.tensors().size()) known_addresses_.clear();
    known_addresses_.insert(memory);
  }
}

}  // namespace tnt
