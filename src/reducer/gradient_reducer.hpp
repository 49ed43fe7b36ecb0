// The interface of gradient reducers, for host memory (reducer.hpp) and for devices (device_reducer.hpp).
//
// src/reducer turns gradients into buckets and schedules their collectives. It uses communicators and devices through their
// interfaces and knows no transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/non_copyable.hpp"
#include "device/device.hpp"
#include "kernels/cpu/pack.hpp"
#include "reducer/plan.hpp"

namespace tnt {

struct ReducerStats {
  std::uint64_t steps = 0;
  std::uint64_t bytes = 0;
  std::int64_t busy_ns = 0;
  std::int64_t exposed_ns = 0;
  std::array<std::int64_t, 4> phase_ns{};  // the parts of busy_ns, by Phase; a hook is in none
};

// A bucket between packing and sending. offsets: the first element of each of its tensors. On a device, `data` is device
// memory, `count` includes padding between tensors, and what accesses the data must be enqueued on `stream`; in host memory it
// is null.
struct PackedBucket {
  std::size_t bucket = 0;
  void* data = nullptr;
  std::size_t count = 0;
  std::span<const std::size_t> offsets;
  StreamHandle stream = nullptr;
};

// May change the data in place. Returns an error message or nothing.
using BucketHook = std::function<std::optional<std::string>(const PackedBucket&)>;

// Calls the hook. An exception counts as an error message.
[[nodiscard]] inline std::optional<std::string> failure_of_hook(const BucketHook& hook, const PackedBucket& packed) {
  try {
    return hook(packed);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The functions tnt_reducer_... of tarantella.h. stream: nullptr for host memory, never nullptr for a device.
class GradientReducer : NonCopyable {
 public:
  virtual ~GradientReducer() = default;

  [[nodiscard]] virtual const Plan& plan() const noexcept = 0;
  [[nodiscard]] virtual const std::string& description(std::size_t bucket) const = 0;
  virtual void set_hook(BucketHook hook) = 0;
  virtual void ready(std::size_t tensor, const TensorView& view, StreamHandle stream) = 0;
  // The same as ready() of one after another, with as many views as tensors.
  virtual void ready_many(std::span<const std::size_t> tensors, std::span<const TensorView> views, StreamHandle stream) {
    for (std::size_t i = 0; i < tensors.size(); ++i) ready(tensors[i], views[i], stream);
  }
  virtual void wait_bucket(std::size_t bucket, StreamHandle stream) = 0;
  virtual void finish(StreamHandle stream) = 0;
  virtual void check() = 0;
  virtual void check_unused() {}  // throws TNT_INVALID_ARGUMENT if a CUDA graph that exists still refers to the reducer
  [[nodiscard]] virtual void* gradient_buffer(std::size_t tensor) = 0;
  [[nodiscard]] virtual std::uint64_t tensor_steps(std::size_t tensor) const = 0;
  [[nodiscard]] virtual ReducerStats stats() const = 0;
};

}  // namespace tnt
