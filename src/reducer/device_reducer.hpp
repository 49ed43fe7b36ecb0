// The reducer of gradients in device memory. Nothing waits on the host: what a bucket needs is enqueued when its last gradient
// is handed over, on streams of the reducer's own, in the order 0, 1, ... of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_communicator.hpp"
#include "device/handles.hpp"
#include "kernels/cuda/tiles.hpp"
#include "reducer/gradient_reducer.hpp"
#include "reducer/step_state.hpp"
#include "reducer/tensor_table.hpp"

namespace tnt {

struct DeviceReducerOptions {
  std::string name = "gradients";
  double timeout = 600.0;  // seconds that the end waits for the device
  bool rank_invariant =
      false;                // sums in one binary tree over ranks: the same bits on any number of ranks that is a power of two
  bool statistics = false;  // of the reduced gradients
  std::uint32_t max_ctas = 0;  // for pack and unpack; 0: as many as are of use
};

// Three streams make a pipeline of three stages: while a bucket travels the next is packed and the last is unpacked.
//
//   caller      ready ─┐                                     ┌─ finish
//   pack stream        └ wait, upload addresses, pack ─┐     │
//   communicator's                                     └ reduce ─┐
//   unpack stream                                                └ unpack ┘
//
// Buckets take turns in `buffers_in_flight` buffers, unless somebody asked for gradient_buffer: then each has its own.
// Capturing a step in a CUDA graph: hand over, wait and finish between the begin and the end of the capture, after a step
// outside of one has ended on the same stream.
class DeviceReducer final : public GradientReducer {
 public:
  // comm: the reducer's own, nobody else's traffic in it.
  DeviceReducer(std::shared_ptr<Device> device, std::unique_ptr<DeviceCommunicator> comm, Plan plan,
                DeviceReducerOptions options);
  ~DeviceReducer() override;

  [[nodiscard]] const Plan& plan() const noexcept override { return plan_; }
  [[nodiscard]] const std::string& description(std::size_t bucket) const override { return descriptions_[bucket]; }
  void set_hook(BucketHook hook) override;  // TNT_UNSUPPORTED
  void ready(std::size_t tensor, const TensorView& view, StreamHandle stream) override;
  void wait_bucket(std::size_t bucket, StreamHandle stream) override;
  void finish(StreamHandle stream) override;
  // The tensor's place in its bucket: a gradient that is handed over from there (in == out == this) is neither packed nor
  // unpacked. Before the first step only. Needs the tensor to travel in its own type.
  [[nodiscard]] void* gradient_buffer(std::size_t tensor) override;
  // Of each bucket, in device memory, valid when the bucket was waited for; nullptr without options.statistics.
  [[nodiscard]] const gpu::Statistics* statistics() const noexcept;
  [[nodiscard]] std::uint64_t tensor_steps(std::size_t tensor) const override;
  [[nodiscard]] ReducerStats stats() const override;

  static constexpr std::size_t buffers_in_flight = 3;

 private:
  // An event as a pipeline has it: what was recorded inside a capture means nothing outside, and the other way round.
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
  struct Buffer {  // bucket-sized memory that buckets take turns in
    DeviceBuffer memory;
    std::optional<DeviceBuffer> gathered;  // the slices of all ranks, where sums do not depend on their number
    CaptureEvent free;
  };
  struct State {  // of one bucket
    gpu::BucketLayout layout;
    std::size_t count;  // elements that travel
    DeviceBuffer tiles;
    std::optional<DeviceBuffer> partials;  // statistics of each tile
    TensorTable table;
    std::vector<StreamHandle> streams;  // from which gradients of this step came
    std::size_t in_place = 0;           // gradients of this step that lie in the bucket, unscaled
    CaptureEvent packed, reduced, done;
  };
  struct CheckedAddresses {  // addresses that were looked up last
    const void* in = nullptr;
    const void* out = nullptr;
  };

  [[nodiscard]] State make_state(std::size_t bucket);
  void make_buffers(std::size_t n);
  [[nodiscard]] Buffer& buffer_of(std::size_t bucket) { return buffers_[bucket % buffers_.size()]; }
  [[nodiscard]] std::byte* slot_of(StepState::Slot slot);
  void check_stream(StreamHandle stream);
  void check_memory(std::size_t tensor, const TensorView& view);
  void check_address(const void* memory, const char* what, const std::string& name);
  void throw_if_failed() const;
  void launch_due(StreamHandle stream);
  void launch(std::size_t bucket, bool capturing);
  void pack(std::size_t bucket, bool capturing);
  void reduce(std::size_t bucket);
  void unpack(std::size_t bucket);
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
  std::vector<std::string> details_;  // for errors: with the reducer's name
  std::vector<State> states_;
  std::vector<Buffer> buffers_;
  std::optional<DeviceBuffer> statistics_;
  std::vector<Event> ready_events_;                 // of the streams of one launch
  std::vector<CheckedAddresses> checked_;           // of each tensor
  std::vector<StreamHandle> known_streams_;         // of this device
  std::vector<const gpu::TensorArgument*> tables_;  // of each bucket in this step
  std::size_t next_ = 0;                            // the bucket whose turn it is
  std::optional<Error> error_;
  ReducerStats stats_;
};

}  // namespace tnt
