// The reducer of gradients in device memory. The host never waits. When the last gradient of a bucket is ready, the bucket's
// work is enqueued on streams of the reducer, in the order 0, 1, ... of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/device_communicator.hpp"
#include "device/handles.hpp"
#include "kernels/cuda/bucket_layout.hpp"
#include "reducer/bucket_buffers.hpp"
#include "reducer/device_arguments.hpp"
#include "reducer/device_times.hpp"
#include "reducer/gradient_reducer.hpp"
#include "reducer/gradient_streams.hpp"
#include "reducer/step_state.hpp"

namespace tnt {

struct DeviceReducerOptions {
  std::string name = "gradients";
  double timeout = 600.0;             // seconds that the destructor waits for the device
  bool rank_invariant = false;        // sums in a tree over ranks: the same bits on any power-of-two number of ranks
  bool statistics = false;            // of the reduced gradients
  std::size_t timing = 0;             // stats() has seconds, of each n-th step; 0: none; a timeline has each step
  bool accumulate = false;            // results are float32, and sums are added to them
  bool gradients_in_buckets = false;  // each bucket has memory of its own, where gradients can lie
  double clip_norm = 0.0;             // results are scaled so that their global norm is at most this; 0: not
  std::uint32_t max_ctas = 0;         // for pack and unpack; 0: no limit
};

// Three streams form a pipeline of three stages: while one bucket travels, the next is packed and the previous one is unpacked.
//
//   caller      ready ─┐                                     ┌─ finish
//   pack stream        └ wait, pack ───────────────────┐     │
//   communicator's                                     └ reduce ─┐
//   unpack stream                                                └ unpack ┘
//
// Buckets share `buffers_in_flight` buffers in turn. With gradients_in_buckets or clip_norm, each has its own.
// With clip_norm, buckets stay in their buffers until finish(): the factor depends on all of them.
//
// To capture a step in a CUDA graph, run one step without capture on the same stream first. Then call ready, wait_bucket and
// finish between the begin and the end of the capture.
class DeviceReducer final : public GradientReducer {
 public:
  // comm: for this reducer alone.
  DeviceReducer(std::shared_ptr<Device> device, std::unique_ptr<DeviceCommunicator> comm, Plan plan,
                DeviceReducerOptions options, Trace* trace = nullptr);
  ~DeviceReducer() override;

  [[nodiscard]] const Plan& plan() const noexcept override { return plan_; }
  [[nodiscard]] const std::string& description(std::size_t bucket) const override { return descriptions_[bucket]; }
  // Allowed between steps. The hook is called by the thread that marks the last gradient of a bucket ready, with the lock held.
  void set_hook(BucketHook hook) override;
  void ready(std::size_t tensor, const TensorView& view, StreamHandle stream) override;
  void ready_many(std::span<const std::size_t> tensors, std::span<const TensorView> views, StreamHandle stream) override;
  void wait_bucket(std::size_t bucket, StreamHandle stream) override;
  void finish(StreamHandle stream) override;
  void check() override;
  void check_unused() override;
  // The address of the tensor in its bucket. A gradient with in == out == this address is neither packed nor unpacked. With
  // gradients_in_buckets, for tensors that travel in their own type.
  [[nodiscard]] void* gradient_buffer(std::size_t tensor) override;
  // The statistics of each bucket, in device memory, valid once the bucket was waited for; nullptr without options.statistics.
  [[nodiscard]] const gpu::Statistics* statistics() const noexcept;
  [[nodiscard]] std::uint64_t tensor_steps(std::size_t tensor) const override;
  [[nodiscard]] ReducerStats stats() const override;

  static constexpr std::size_t buffers_in_flight = 3;

 private:
  // An event that keeps captures apart: an event that was recorded inside a capture means nothing outside, and vice versa.
  class CaptureEvent {
   public:
    explicit CaptureEvent(Device& device) : event_(device) {}
    void record(StreamHandle stream, bool capturing);
    void wait_on(StreamHandle stream, bool capturing) const;
    void forget() noexcept { recorded_ = false; }

   private:
    Event event_;
    bool recorded_ = false;
    bool captured_ = false;
  };
  struct State {  // of one bucket
    gpu::BucketLayout layout;
    std::size_t count;               // elements that travel, padding included
    std::vector<std::size_t> owned;  // elements that each rank needs, one rank after another; empty: each needs all
    DeviceBuffer tiles;
    std::optional<DeviceBuffer> partials;        // statistics of each tile
    std::vector<gpu::TensorArgument> arguments;  // of this step
    GradientStreams streams;                     // of this step
    std::size_t in_place = 0;                    // number of this step's gradients that are in the bucket, unscaled
    bool results_in_bucket = true;               // of this step: all that are wanted
    CaptureEvent packed, reduced, done;
  };
  [[nodiscard]] std::vector<std::size_t> segments_of(const Bucket& bucket, const gpu::BucketLayout& layout) const;
  [[nodiscard]] State make_state(std::size_t bucket);
  void make_buffers(std::size_t n);
  [[nodiscard]] BucketBuffers::Buffer& buffer_of(std::size_t bucket) { return buffers_->of(bucket); }
  [[nodiscard]] std::byte* slot_of(StepState::Slot slot);
  void check_call(StreamHandle stream);
  void mark_ready(std::size_t tensor, const TensorView& view, StreamHandle stream);
  void check_plan() const;
  void throw_if_failed() const;
  void launch_due(StreamHandle stream);
  void launch(std::size_t bucket, bool capturing, std::vector<StreamHandle>& joined);
  void forget_users(bool capturing, const std::vector<StreamHandle>& joined);
  void pack(std::size_t bucket, bool capturing);
  void call_hook(std::size_t bucket);
  [[nodiscard]] bool travels(std::size_t bucket);
  void reduce(std::size_t bucket);
  void unpack(std::size_t bucket);
  void measure(std::size_t bucket);
  void sum_statistics(std::size_t bucket);
  void clip(bool capturing);
  [[nodiscard]] bool clips() const noexcept { return options_.clip_norm > 0.0; }
  [[nodiscard]] bool has_own_buffers() const noexcept { return options_.gradients_in_buckets || clips(); }
  [[nodiscard]] bool measures() const noexcept { return options_.statistics || clips(); }
  [[noreturn]] void abort_with(const std::exception& error, const std::string& what);
  void record_time(std::size_t bucket, DeviceTimes::Moment moment, StreamHandle stream, bool capturing);
  [[nodiscard]] gpu::BucketLaunch launch_of(std::size_t bucket);
  void wait_for(std::size_t bucket, StreamHandle stream);

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<DeviceCommunicator> comm_;
  const Plan plan_;
  const DeviceReducerOptions options_;
  Stream pack_stream_;
  Stream unpack_stream_;

  mutable std::mutex mutex_;
  StepState steps_;
  std::vector<std::string> descriptions_;
  std::vector<std::string> details_;  // with the reducer's name, for errors
  std::vector<State> states_;
  std::optional<BucketBuffers> buffers_;
  std::optional<DeviceBuffer> statistics_;
  std::optional<DeviceBuffer> factor_;  // of clip_norm
  DeviceArguments arguments_;
  BucketHook hook_;
  std::size_t next_ = 0;                // the next bucket to launch
  StreamHandle all_done_on_ = nullptr;  // it waits for all that was launched before bucket 0 of the next step
  std::optional<Error> error_;
  mutable ReducerStats stats_;
  mutable std::optional<DeviceTimes> times_;
};

}  // namespace tnt
