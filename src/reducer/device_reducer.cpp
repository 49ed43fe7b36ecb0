#include "reducer/device_reducer.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "common/memory.hpp"

namespace tnt {
namespace {

std::vector<gpu::TensorShape> shapes_of(const Plan& plan, std::size_t bucket) {
  std::vector<gpu::TensorShape> shapes;
  for (const std::size_t tensor : plan.buckets()[bucket].tensors) {
    shapes.push_back({plan.tensors()[tensor].count, plan.tensors()[tensor].dtype});
  }
  return shapes;
}

}  // namespace

void DeviceReducer::CaptureEvent::record(StreamHandle stream, bool capturing) {
  event_.record(stream);
  recorded_ = true;
  captured_ = capturing;
}

void DeviceReducer::CaptureEvent::wait_on(StreamHandle stream, bool capturing) const {
  if (recorded_ && captured_ == capturing) event_.wait_on(stream);
}

DeviceReducer::DeviceReducer(std::shared_ptr<Device> device, std::unique_ptr<DeviceCommunicator> comm, Plan plan,
                             DeviceReducerOptions options, Trace* trace)
    : device_(std::move(device)),
      comm_(std::move(comm)),
      plan_(std::move(plan)),
      options_(std::move(options)),
      pack_stream_(*device_, Priority::high),
      unpack_stream_(*device_, Priority::high),
      steps_(plan_),
      arguments_(*device_, plan_, options_.name, options_.accumulate) {
  if (options_.rank_invariant && comm_->size() > gpu::max_sources) {
    fail(TNT_UNSUPPORTED, "{}: sums that do not depend on the number of ranks support up to {} ranks, not {}", options_.name,
         gpu::max_sources, comm_->size());
  }
  check_plan();
  const std::size_t n = plan_.buckets().size();
  for (std::size_t bucket = 0; bucket < n; ++bucket) {
    descriptions_.push_back(plan_.describe(bucket));
    details_.push_back(fmt::format("{} {}", options_.name, descriptions_.back()));
    states_.push_back(make_state(bucket));
  }
  if (n > 0) make_buffers(has_own_buffers() ? n : std::min(n, buffers_in_flight));
  if (measures()) statistics_.emplace(*device_, n * sizeof(gpu::Statistics), unpack_stream_.get());
  if (clips()) factor_.emplace(*device_, sizeof(double), unpack_stream_.get());
  if (options_.timing > 0 || trace != nullptr) {
    times_.emplace(*device_, n, trace != nullptr ? 1 : options_.timing, trace, options_.name, pack_stream_.get());
  }
}

void DeviceReducer::check_plan() const {
  for (const Bucket& bucket : plan_.buckets()) {
    if (!is_float8(bucket.dtype) || options_.rank_invariant) continue;
    fail(
        TNT_INVALID_ARGUMENT,
        "{}: gradients travel in {} with TNT_DETERMINISM_RANKS only, which sums in float32: NCCL would round each partial sum; "
        "set options->determinism, or wire_dtype to TNT_BFLOAT16",
        options_.name, dtype_name(bucket.dtype));
  }
  if (plan_.has_owners() && measures()) {
    fail(TNT_INVALID_ARGUMENT, "{}: owners with {}: no rank has the sums of all tensors", options_.name,
         clips() ? "clip_norm" : "statistics");
  }
  if (!clips() && !options_.accumulate) return;
  if (clips() && options_.accumulate) {
    fail(TNT_INVALID_ARGUMENT,
         "{}: clip_norm with accumulate: the norm would be that of one step's gradients, not of the sums: clip the sums when "
         "they are complete",
         options_.name);
  }
  for (const Bucket& bucket : plan_.buckets()) {
    const TensorSpec& first = plan_.tensors()[bucket.tensors.front()];
    if (clips() && is_integer(bucket.dtype)) {
      fail(TNT_INVALID_ARGUMENT, "{}: clip_norm: '{}' is {}, which has no norm to be scaled", options_.name, first.name,
           dtype_name(bucket.dtype));
    }
    if (options_.accumulate && (is_integer(bucket.dtype) || bucket.dtype == TNT_FLOAT64)) {
      fail(TNT_INVALID_ARGUMENT,
           "{}: accumulate: '{}' is reduced as {}: float32 results accumulate float32, float16 and bfloat16 only",
           options_.name, first.name, dtype_name(bucket.dtype));
    }
  }
}

// Enqueued work accesses memory of this object and of the caller, so the destructor waits for it. Work of NCCL ends with the
// communicator, also after an abort; earlier work ends with the caller's stream.
DeviceReducer::~DeviceReducer() {
  const Deadline deadline(options_.timeout);
  try {
    for (const StreamHandle stream : {pack_stream_.get(), comm_->stream(), unpack_stream_.get()}) {
      while (!device_->idle(stream) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (!deadline.passed()) return;
  } catch (const Error& error) {
    log(LogLevel::warning, "{}: the device failed while its last step was waited for: {}", options_.name, error.what());
  }
  if (buffers_) buffers_->leave();
}

DeviceReducer::State DeviceReducer::make_state(std::size_t bucket) {
  const StreamHandle stream = pack_stream_.get();
  gpu::BucketLayout layout = gpu::make_layout(shapes_of(plan_, bucket), plan_.buckets()[bucket].dtype);
  const std::size_t n_tiles = layout.tiles.size();
  // a whole number of cache lines in every rank's slice
  const std::size_t unit = options_.rank_invariant ? static_cast<std::size_t>(comm_->size()) * 64 : 1;
  State state{.layout = std::move(layout),
              .count = 0,
              .owned = {},
              .tiles = DeviceBuffer(*device_, n_tiles * sizeof(gpu::Tile), stream),
              .partials = std::nullopt,
              .arguments = std::vector<gpu::TensorArgument>(plan_.buckets()[bucket].tensors.size()),
              .streams = {},
              .packed = CaptureEvent(*device_),
              .reduced = CaptureEvent(*device_),
              .done = CaptureEvent(*device_)};
  state.count = rounded_up(state.layout.count, unit);
  if (plan_.has_owners() && !options_.rank_invariant) state.owned = segments_of(plan_.buckets()[bucket], state.layout);
  if (measures()) state.partials.emplace(*device_, n_tiles * sizeof(gpu::Statistics), stream);
  const PinnedBuffer pinned(*device_, n_tiles * sizeof(gpu::Tile));
  std::copy(state.layout.tiles.begin(), state.layout.tiles.end(), static_cast<gpu::Tile*>(pinned.get()));
  device_->copy(state.tiles.get(), pinned.get(), n_tiles * sizeof(gpu::Tile), stream);
  device_->synchronize(stream);
  return state;
}

// The elements of each rank's tensors, with the padding behind them.
std::vector<std::size_t> DeviceReducer::segments_of(const Bucket& bucket, const gpu::BucketLayout& layout) const {
  std::vector<std::size_t> segments(static_cast<std::size_t>(comm_->size()));
  for (std::size_t position = 0; position < bucket.tensors.size(); ++position) {
    const std::size_t end = position + 1 < layout.slots.size() ? layout.slots[position + 1] : layout.count;
    segments[static_cast<std::size_t>(*plan_.tensors()[bucket.tensors[position]].owner)] += end - layout.slots[position];
  }
  return segments;
}

void DeviceReducer::make_buffers(std::size_t n) {
  std::vector<std::size_t> bytes;
  for (std::size_t bucket = 0; bucket < states_.size(); ++bucket) {
    bytes.push_back(states_[bucket].count * dtype_size(plan_.buckets()[bucket].dtype));
  }
  if (n < bytes.size()) bytes.assign(n, *std::max_element(bytes.begin(), bytes.end()));
  const bool with_gathered = options_.rank_invariant && comm_->size() > 1;
  const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}) * (with_gathered ? 2 : 1);
  log(LogLevel::info, "{}: buckets take {:.1f} MiB of the device's memory", options_.name,
      static_cast<double>(all) / (1 << 20));
  buffers_.emplace(*device_, *comm_, bytes, with_gathered, pack_stream_.get());
}

void DeviceReducer::set_hook(BucketHook hook) {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  steps_.check_between_steps("a hook cannot be set", details_);
  hook_ = std::move(hook);
}

// It may change the data in work that it enqueues, also of gradients that lie in the bucket.
void DeviceReducer::call_hook(std::size_t bucket) {
  const DeviceRange range(*device_, "hook");
  const gpu::BucketLayout& layout = states_[bucket].layout;
  const auto failure = failure_of_hook(hook_, {.bucket = bucket,
                                               .data = buffer_of(bucket).memory,
                                               .count = layout.count,
                                               .offsets = layout.slots,
                                               .stream = pack_stream_.get()});
  if (failure) fail(TNT_ABORTED, "the bucket hook failed: {}", *failure);
}

std::byte* DeviceReducer::slot_of(StepState::Slot slot) {
  const std::size_t at = states_[slot.bucket].layout.slots[slot.position];
  return buffer_of(slot.bucket).memory + at * dtype_size(plan_.buckets()[slot.bucket].dtype);
}

void* DeviceReducer::gradient_buffer(std::size_t tensor) {
  const StepState::Slot slot = steps_.slot(tensor);
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  const TensorSpec& spec = plan_.tensors()[tensor];
  const tnt_dtype_t wire = plan_.buckets()[slot.bucket].dtype;
  if (spec.dtype != wire) {
    fail(TNT_INVALID_ARGUMENT,
         "'{}' is {} but is reduced as {}: only a gradient that is reduced in its own type can lie in its bucket", spec.name,
         dtype_name(spec.dtype), dtype_name(wire));
  }
  if (!options_.gradients_in_buckets) {
    fail(TNT_INVALID_ARGUMENT, "{}: gradients have no places in buckets: set gradients_in_buckets when the reducer is created",
         options_.name);
  }
  return slot_of(slot);
}

void DeviceReducer::throw_if_failed() const {
  if (error_) throw Error(*error_);
}

void DeviceReducer::ready(std::size_t tensor, const TensorView& view, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  check_call(stream);
  mark_ready(tensor, view, stream);
}

void DeviceReducer::ready_many(std::span<const std::size_t> tensors, std::span<const TensorView> views, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  check_call(stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) mark_ready(tensors[i], views[i], stream);
}

void DeviceReducer::check_call(StreamHandle stream) {
  throw_if_failed();
  comm_->throw_if_aborted();
  arguments_.check_stream(stream);
  comm_->check_capture(stream);
}

void DeviceReducer::mark_ready(std::size_t tensor, const TensorView& view, StreamHandle stream) {
  const StepState::Slot slot = steps_.slot(tensor);
  arguments_.check_memory(tensor, view);
  steps_.check_not_ready(slot);
  State& state = states_[slot.bucket];
  const bool lies_there = options_.gradients_in_buckets && view.in == slot_of(slot);
  const bool in_place = lies_there && view.scale == 1.0 && (view.out == view.in || options_.accumulate);
  const bool is_needed = plan_.tensors()[tensor].is_needed_by(comm_->rank());
  const bool stays = (lies_there && view.out == view.in && !clips()) || !is_needed;
  state.arguments[slot.position] = {.in = in_place ? nullptr : view.in, .out = stays ? nullptr : view.out, .scale = view.scale};
  state.in_place += in_place ? 1 : 0;
  state.results_in_bucket = state.results_in_bucket && stays;
  state.streams.add(*device_, stream);
  if (steps_.mark_ready(slot)) launch_due(stream);
}

// All ranks launch the buckets in the same order, whatever the order of the gradients.
void DeviceReducer::launch_due(StreamHandle stream) {
  try {
    const bool capturing = device_->capturing(stream);
    std::vector<StreamHandle> joined;  // one record on a caller's stream for all buckets that are due
    while (steps_.stage(next_) == StepState::Stage::full) {
      if (times_ && !capturing) {
        if (next_ == 0) times_->begin_step(stats_);
        if (next_ + 1 == states_.size()) times_->last_gradient(stream);
      }
      launch(next_, capturing, joined);
      steps_.done(next_);
      ++stats_.steps;
      stats_.bytes += plan_.buckets()[next_].bytes();
      next_ = (next_ + 1) % states_.size();
    }
  } catch (const std::exception& error) {
    abort_with(error, details_[next_]);
  }
}

// A part of the work may be enqueued, and the other ranks wait for the rest.
void DeviceReducer::abort_with(const std::exception& error, const std::string& what) {
  const Error ours = to_error(error);
  error_ = Error(ours.status(), fmt::format("rank {}: {}: {}", comm_->rank(), what, ours.what()));
  comm_->abort(ours.status(), error_->what());
  throw Error(*error_);
}

void DeviceReducer::launch(std::size_t bucket, bool capturing, std::vector<StreamHandle>& joined) {
  const DeviceRange range(*device_, details_[bucket].c_str());
  State& state = states_[bucket];
  const StreamHandle packing = pack_stream_.get();
  const StreamHandle unpacking = unpack_stream_.get();
  state.streams.join(*device_, packing, joined);
  if (bucket == 0) forget_users(capturing, joined);
  if (times_ && !capturing) times_->begin(bucket, packing);
  pack(bucket, capturing);
  if (hook_) call_hook(bucket);
  record_time(bucket, DeviceTimes::Moment::packed, packing, capturing);
  if (capturing || !travels(bucket) || !comm_->follow(packing)) {
    state.packed.record(packing, capturing);
    state.packed.wait_on(comm_->stream(), capturing);
  }
  record_time(bucket, DeviceTimes::Moment::started, comm_->stream(), capturing);
  if (travels(bucket)) reduce(bucket);
  if (!travels(bucket) || !comm_->follow_last(unpacking)) {
    state.reduced.record(comm_->stream(), capturing);
    state.reduced.wait_on(unpacking, capturing);
  }
  record_time(bucket, DeviceTimes::Moment::reduced, unpacking, capturing);
  if (clips() || (options_.accumulate && statistics_)) measure(bucket);
  if (!clips()) unpack(bucket);
  const bool ends_in_finish = clips() && bucket + 1 == states_.size();
  if (!ends_in_finish) record_time(bucket, DeviceTimes::Moment::done, unpacking, capturing);
  state.done.record(unpacking, capturing);
  buffer_of(bucket).last_user = bucket;
  state.in_place = 0;
  state.results_in_bucket = true;
}

void DeviceReducer::record_time(std::size_t bucket, DeviceTimes::Moment moment, StreamHandle stream, bool capturing) {
  if (times_ && !capturing) times_->record(bucket, moment, stream);
}

gpu::BucketLaunch DeviceReducer::launch_of(std::size_t bucket) {
  const State& state = states_[bucket];
  gpu::BucketLaunch launch =
      state.layout.launch(static_cast<const gpu::Tile*>(state.tiles.get()), state.arguments.data(), buffer_of(bucket).memory);
  launch.max_ctas = options_.max_ctas;
  return launch;
}

// If packing has joined the stream that waits for the step before, no bucket of this one has to wait for its buffer.
void DeviceReducer::forget_users(bool capturing, const std::vector<StreamHandle>& joined) {
  const StreamHandle all_done_on = std::exchange(all_done_on_, nullptr);
  if (capturing || all_done_on == nullptr) return;
  if (std::find(joined.begin(), joined.end(), all_done_on) != joined.end()) buffers_->forget_users();
}

void DeviceReducer::pack(std::size_t bucket, bool capturing) {
  const DeviceRange range(*device_, "pack");
  State& state = states_[bucket];
  const StreamHandle packing = pack_stream_.get();
  if (const auto user = buffer_of(bucket).last_user) states_[*user].done.wait_on(packing, capturing);
  if (state.in_place < plan_.buckets()[bucket].tensors.size()) device_->pack(launch_of(bucket), packing);
}

// A bucket in 8 bits of one rank is its sum.
bool DeviceReducer::travels(std::size_t bucket) {
  return buffer_of(bucket).gathered != nullptr || !is_float8(plan_.buckets()[bucket].dtype);
}

// The ranks exchange slices, one for each rank, and our kernel sums each slice in a tree that does not depend on the transport.
// As many bytes travel as in a ring.
void DeviceReducer::reduce(std::size_t bucket) {
  const DeviceRange range(*device_, "reduce");
  const BucketBuffers::Buffer& buffer = buffer_of(bucket);
  const State& state = states_[bucket];
  const tnt_dtype_t dtype = plan_.buckets()[bucket].dtype;
  std::byte* const data = buffer.memory;
  if (!state.owned.empty()) {
    const auto rank = static_cast<std::size_t>(comm_->rank());
    const std::size_t begin = std::accumulate(state.owned.begin(), state.owned.begin() + comm_->rank(), std::size_t{0});
    auto* const own = data + (state.owned[rank] == 0 ? 0 : begin * dtype_size(dtype));
    return comm_->run({uneven_call(Call::reduce_scatter_v, state.owned, dtype), data, own, state.owned}, details_[bucket]);
  }
  if (buffer.gathered == nullptr) {
    return comm_->run({{.kind = Call::all_reduce, .dtype = dtype, .count = state.count}, data, data}, details_[bucket]);
  }
  const tnt_dtype_t moved = is_float8(dtype) ? TNT_UINT8 : dtype;  // of the same size
  const std::size_t slice = state.count / static_cast<std::size_t>(comm_->size());
  const std::size_t bytes = slice * dtype_size(dtype);
  std::byte* const gathered = buffer.gathered;
  std::byte* const own = data + static_cast<std::size_t>(comm_->rank()) * bytes;
  comm_->run({{.kind = Call::all_to_all, .dtype = moved, .count = slice}, data, gathered}, details_[bucket]);
  std::vector<const void*> sources;
  sources.reserve(static_cast<std::size_t>(comm_->size()));
  for (int rank = 0; rank < comm_->size(); ++rank) sources.push_back(gathered + static_cast<std::size_t>(rank) * bytes);
  device_->reduce(own, sources.data(), comm_->size(), slice, dtype, comm_->stream());
  comm_->run({{.kind = Call::all_gather, .dtype = moved, .count = slice}, own, data}, details_[bucket]);
}

void DeviceReducer::unpack(std::size_t bucket) {
  const DeviceRange range(*device_, "unpack");
  const State& state = states_[bucket];
  gpu::BucketLaunch launch = launch_of(bucket);
  if (options_.accumulate) return device_->accumulate(launch, unpack_stream_.get());
  if (statistics_) launch.statistics = static_cast<gpu::Statistics*>(state.partials->get());
  if (statistics_ || !state.results_in_bucket) device_->unpack(launch, unpack_stream_.get());
  if (statistics_) sum_statistics(bucket);
}

// The statistics of a bucket that is not unpacked into the types of its tensors, or not yet.
void DeviceReducer::measure(std::size_t bucket) {
  const std::vector<gpu::TensorArgument> unwanted(states_[bucket].arguments.size());
  gpu::BucketLaunch launch = launch_of(bucket);
  launch.tensors = unwanted.data();
  launch.statistics = static_cast<gpu::Statistics*>(states_[bucket].partials->get());
  device_->unpack(launch, unpack_stream_.get());
  sum_statistics(bucket);
}

void DeviceReducer::sum_statistics(std::size_t bucket) {
  device_->sum_statistics(static_cast<const gpu::Statistics*>(states_[bucket].partials->get()),
                          static_cast<std::uint32_t>(states_[bucket].layout.tiles.size()),
                          static_cast<gpu::Statistics*>(statistics_->get()) + bucket, unpack_stream_.get());
}

// The end of a step with clip_norm: the buckets are reduced and measured, on the unpack stream.
void DeviceReducer::clip(bool capturing) {
  const DeviceRange range(*device_, "clip");
  const StreamHandle unpacking = unpack_stream_.get();
  auto* const factor = static_cast<double*>(factor_->get());
  device_->clip_factor(static_cast<const gpu::Statistics*>(statistics_->get()), static_cast<std::uint32_t>(states_.size()),
                       options_.clip_norm, factor, unpacking);
  for (std::size_t bucket = 0; bucket < states_.size(); ++bucket) {
    gpu::BucketLaunch launch = launch_of(bucket);
    launch.factor = factor;
    device_->unpack(launch, unpacking);
    if (bucket + 1 == states_.size()) record_time(bucket, DeviceTimes::Moment::done, unpacking, capturing);
    states_[bucket].done.record(unpacking, capturing);
  }
}

void DeviceReducer::wait_for(std::size_t bucket, StreamHandle stream) {
  const bool capturing = device_->capturing(stream);
  states_[bucket].done.wait_on(stream, capturing);
  steps_.waited_for(bucket);
  // unpacking is in stream order
  if (!capturing && bucket + 1 == states_.size() && next_ == 0) all_done_on_ = stream;
  if (!capturing || bucket + 1 < states_.size()) return;
  // this capture's work has joined the stream; another capture must not refer to its events
  for (State& state : states_) {
    for (CaptureEvent* event : {&state.packed, &state.reduced, &state.done}) event->forget();
  }
}

void DeviceReducer::wait_bucket(std::size_t bucket, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  comm_->throw_if_aborted();
  steps_.check_begun(bucket);
  arguments_.check_stream(stream);
  if (clips()) {
    fail(TNT_INVALID_ARGUMENT, "{}: with clip_norm no bucket is complete before the end of the step: call tnt_reducer_finish",
         options_.name);
  }
  if (steps_.in_step(bucket)) {
    fail(TNT_INVALID_ARGUMENT,
         "waiting for bucket {} before the gradient of '{}' was marked ready: wait for buckets in their order", bucket,
         steps_.missing_tensor(next_));
  }
  wait_for(bucket, stream);
}

void DeviceReducer::finish(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  comm_->throw_if_aborted();
  arguments_.check_stream(stream);
  steps_.check_can_finish();
  if (states_.empty()) return;
  if (clips()) {
    try {
      clip(device_->capturing(stream));
    } catch (const std::exception& error) {
      abort_with(error, options_.name);
    }
  }
  // unpacking is in stream order, so the last bucket is done last
  wait_for(states_.size() - 1, stream);
  for (std::size_t bucket = 0; bucket < states_.size(); ++bucket) {
    steps_.waited_for(bucket);
    steps_.finished(bucket);
  }
}

void DeviceReducer::check() {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  comm_->check();
}

void DeviceReducer::check_unused() {
  const std::size_t captured = comm_->captured_operations();
  if (captured == 0) return;
  fail(TNT_INVALID_ARGUMENT,
       "{}: CUDA graphs with {} reductions of buckets of this reducer still exist and use its memory: destroy them first "
       "(cudaGraphExecDestroy and cudaGraphDestroy)",
       options_.name, captured);
}

const gpu::Statistics* DeviceReducer::statistics() const noexcept {
  return statistics_ && options_.statistics ? static_cast<const gpu::Statistics*>(statistics_->get()) : nullptr;
}

std::uint64_t DeviceReducer::tensor_steps(std::size_t tensor) const {
  const std::scoped_lock lock(mutex_);
  return steps_.steps(steps_.slot(tensor).bucket);
}

ReducerStats DeviceReducer::stats() const {
  const std::scoped_lock lock(mutex_);
  if (times_) times_->collect(stats_);
  ReducerStats stats = stats_;
  if (!states_.empty()) stats.steps /= states_.size();
  return stats;
}

}  // namespace tnt
