#include "support/simulated_device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "common/dtype.hpp"
#include "support/simulated_memory.hpp"
#include "support/simulated_stream.h"

namespace tnt::testing {
namespace {

constexpr const char* call_names[] = {"allocate",
                                      "allocate_pinned",
                                      "make_stream",
                                      "idle",
                                      "synchronize",
                                      "make_event",
                                      "record",
                                      "wait",
                                      "completed",
                                      "copy",
                                      "fill_zero",
                                      "call",
                                      "pack",
                                      "unpack",
                                      "accumulate",
                                      "sum_statistics",
                                      "clip_factor",
                                      "reduce",
                                      "pointer_attributes",
                                      "capturing"};

thread_local int current_device = 0;
thread_local SimulatedDevice* entered_device = nullptr;  // with_current_device

SimulatedMemory& memory_of_all() { return SimulatedMemory::of_process(); }

void append(std::vector<Access>& accesses, const std::vector<Bytes>& ranges, bool write) {
  for (const Bytes& range : ranges) accesses.push_back({range.memory, range.count, write});
}

}  // namespace

SimulatedDevice::SimulatedDevice(int index, const SimulationOptions& options, const Kernels& kernels)
    : index_(index), kernels_(kernels), streams_(std::make_unique<SimulatedStreams>(this, options)) {}

SimulatedDevice::~SimulatedDevice() {
  streams_->run_all();
  look_for_leaks();
  for (const std::string& report : streams_->take_reports()) ADD_FAILURE() << report;
}

void SimulatedDevice::look_for_leaks() {
  streams_->report_leaks();
  const SimulatedMemory::Open open;
  for (const MemoryBlock& block : memory_of_all().blocks_of_owner(this)) {
    if (!memory_of_all().guards_intact(block)) streams_->report("somebody wrote before or behind " + block.name);
    streams_->report(fmt::format("{} ({} bytes) was never released", block.name, block.bytes));
    (void)memory_of_all().release(block.memory);
  }
}

void SimulatedDevice::count(Call kind) {
  const std::scoped_lock lock(mutex_);
  const auto index = static_cast<std::size_t>(kind);
  if (++counts_[index].calls != counts_[index].fail_at) return;
  if (counts_[index].failure == Failure::of_host_memory) throw std::bad_alloc();
  fail(TNT_SYSTEM, "{} failed: injected by the test", call_names[index]);
}

void SimulatedDevice::begin_range(const char* name) noexcept {
  const std::scoped_lock lock(mutex_);
  ranges_.push_back(std::string("begin ") + name);
}

void SimulatedDevice::end_range() noexcept {
  const std::scoped_lock lock(mutex_);
  ranges_.emplace_back("end");
}

std::vector<std::string> SimulatedDevice::take_ranges() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(ranges_, {});
}

void SimulatedDevice::fail_at(Call kind, int nth, Failure failure) {
  const std::scoped_lock lock(mutex_);
  Count& count = counts_[static_cast<std::size_t>(kind)];
  count.fail_at = count.calls + nth;
  count.failure = failure;
}

int SimulatedDevice::calls(Call kind) {
  const std::scoped_lock lock(mutex_);
  return counts_[static_cast<std::size_t>(kind)].calls;
}

void SimulatedDevice::put(StreamHandle stream, const char* what, std::function<std::vector<Access>()> accesses,
                          std::function<void()> run) {
  streams_->enqueue(stream, {what, std::move(accesses), [run = std::move(run)] {
                               run();
                               return true;
                             }});
}

void SimulatedDevice::enqueue(StreamHandle stream, const std::vector<Bytes>& reads, const std::vector<Bytes>& writes,
                              std::function<void()> run, const std::string& what) {
  std::vector<Access> accesses;
  append(accesses, reads, false);
  append(accesses, writes, true);
  put(
      stream, what.c_str(), [accesses] { return accesses; }, std::move(run));
}

void SimulatedDevice::host_reads(const void* memory, std::size_t bytes, const std::string& what) {
  streams_->host_access({memory, bytes, false}, what);
}

void SimulatedDevice::host_writes(const void* memory, std::size_t bytes, const std::string& what) {
  streams_->host_access({memory, bytes, true}, what);
}

void SimulatedDevice::read(void* to, const void* memory, std::size_t bytes) {
  host_reads(memory, bytes, "the test's look");
  const SimulatedMemory::Open open;
  if (bytes > 0) std::memcpy(to, memory, bytes);
}

void SimulatedDevice::write(void* memory, const void* from, std::size_t bytes) {
  host_writes(memory, bytes, "the test's values");
  const SimulatedMemory::Open open;
  if (bytes > 0) std::memcpy(memory, from, bytes);
}

void SimulatedDevice::name_memory(const void* memory, const std::string& name) { memory_of_all().name(memory, name); }

void* SimulatedDevice::allocate(std::size_t bytes, StreamHandle stream) {
  count(Call::allocate);
  if (streams_->capturing(stream))
    streams_->refuse("memory was allocated on a stream that is captured: it is the graph's alone");
  void* memory = memory_of_all().allocate(this, {PointerAttributes::Kind::device, index_}, bytes);
  put(
      stream, "allocate",
      [memory, bytes] {
        return std::vector<Access>{{memory, bytes, true}};
      },
      [] {});
  return memory;
}

void SimulatedDevice::release(void* memory, StreamHandle stream) noexcept {
  const auto block = memory_of_all().block_of(memory);
  if (!block || block->memory != memory || block->owner != this || block->released) {
    return streams_->report("something was released that is no memory of this device");
  }
  try {
    if (streams_->capturing(stream)) streams_->refuse(block->name + " was released on a stream that is captured");
    put(
        stream, "release",
        [block] {
          return std::vector<Access>{{block->memory, block->bytes, true}};
        },
        [this, memory] { release_block(memory); });
  } catch (const Error& error) {
    streams_->report(fmt::format("{} could not be released: {}", block->name, error.what()));
  }
}

SimulatedDevice* SimulatedDevice::entered() { return entered_device; }

void* SimulatedDevice::allocate_at_once(std::size_t bytes) {
  if (entered_device == nullptr) return nullptr;
  try {
    entered_device->count(Call::allocate);
  } catch (const Error&) {
    return nullptr;
  }
  return memory_of_all().allocate(entered_device, {PointerAttributes::Kind::device, entered_device->index_}, bytes);
}

void SimulatedDevice::release_at_once(void* memory) {
  const auto block = memory_of_all().block_of(memory);
  if (entered_device == nullptr || !block || block->memory != memory || block->owner != entered_device || block->released) {
    ADD_FAILURE() << "something was released that is no memory of the current device";
    return;
  }
  entered_device->host_writes(memory, block->bytes, "releases it");
  entered_device->release_block(memory);
}

void SimulatedDevice::release_block(void* memory) {
  const auto block = memory_of_all().block_of(memory);
  if (!memory_of_all().release(memory)) streams_->report("somebody wrote before or behind " + block->name);
}

void* SimulatedDevice::allocate_pinned(std::size_t bytes) {
  count(Call::allocate_pinned);
  if (streams_->any_capture()) streams_->refuse("pinned memory was allocated while a stream is captured");
  return memory_of_all().allocate(this, {PointerAttributes::Kind::pinned, -1}, bytes);
}

void SimulatedDevice::release_pinned(void* memory) noexcept {
  const auto block = memory_of_all().block_of(memory);
  if (!block || block->memory != memory || block->owner != this || block->released) {
    return streams_->report("something was released that is no pinned memory of this device");
  }
  // cudaFreeHost waits for all streams of the device. Where no thread makes progress, a release in use is reported instead.
  if (streams_->progress() == Progress::thread) streams_->run_all();
  host_writes(memory, block->bytes, "releases it");
  release_block(memory);
}

PointerAttributes SimulatedDevice::pointer_attributes(const void* memory) {
  count(Call::pointer_attributes);
  const auto block = memory_of_all().block_of(memory);
  return block && !block->released && memory < block->end() ? block->place : PointerAttributes{};
}

StreamHandle SimulatedDevice::make_stream(Priority priority) {
  count(Call::make_stream);
  return streams_->make_stream(priority);
}

void SimulatedDevice::destroy_stream(StreamHandle stream) noexcept { streams_->destroy_stream(stream); }

bool SimulatedDevice::idle(StreamHandle stream) {
  count(Call::idle);
  return streams_->idle(stream);
}

void SimulatedDevice::synchronize(StreamHandle stream) {
  count(Call::synchronize);
  streams_->synchronize(stream);
}

void SimulatedDevice::set_current(int index) { current_device = index; }

void SimulatedDevice::with_current_device(const std::function<void()>& body) {
  const int before = std::exchange(current_device, index_);
  SimulatedDevice* const outer = std::exchange(entered_device, this);
  const auto restore = [&](void*) {
    current_device = before;
    entered_device = outer;
  };
  const std::unique_ptr<void, decltype(restore)> guard(this, restore);
  body();
}

int SimulatedDevice::device_of(StreamHandle stream) {
  if (is_default_stream(stream)) return current_device;
  const SimulatedStreams* owner = SimulatedStreams::of(stream);
  if (owner == nullptr) fail(TNT_SYSTEM, "{} is no stream", stream);
  return static_cast<const SimulatedDevice*>(owner->owner())->index();
}

bool SimulatedDevice::capturing(StreamHandle stream) {
  count(Call::capturing);
  return streams_->capturing(stream);
}

EventHandle SimulatedDevice::make_event() {
  count(Call::make_event);
  return streams_->make_event();
}

EventHandle SimulatedDevice::make_timed_event() {
  EventHandle event = make_event();
  const std::scoped_lock lock(mutex_);
  times_[event];
  return event;
}

void SimulatedDevice::destroy_event(EventHandle event) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    times_.erase(event);
  }
  streams_->destroy_event(event);
}

void SimulatedDevice::record(EventHandle event, StreamHandle stream) {
  count(Call::record);
  const bool timed = [&] {
    const std::scoped_lock lock(mutex_);
    return times_.contains(event);
  }();
  if (timed) {
    put(
        stream, "time", [] { return std::vector<Access>{}; },
        [this, event] {
          const std::scoped_lock lock(mutex_);
          if (const auto found = times_.find(event); found != times_.end()) found->second = now_ns();
        });
  }
  streams_->record(event, stream);
}

void SimulatedDevice::wait(StreamHandle stream, EventHandle event) {
  count(Call::wait);
  streams_->wait(stream, event);
}

bool SimulatedDevice::completed(EventHandle event) {
  count(Call::completed);
  return streams_->completed(event);
}

double SimulatedDevice::seconds_between(EventHandle begin, EventHandle end) {
  for (EventHandle event : {begin, end}) {
    if (!streams_->completed(event)) streams_->refuse("the time of an event was asked for that has not completed");
  }
  const std::scoped_lock lock(mutex_);
  const auto from = times_.find(begin);
  const auto to = times_.find(end);
  if (from == times_.end() || to == times_.end() || !from->second || !to->second) {
    streams_->refuse("the time between events was asked for that have none");
  }
  return static_cast<double>(*to->second - *from->second) * 1e-9;
}

void SimulatedDevice::copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  count(Call::copy);
  put(
      stream, "copy",
      [=] {
        return std::vector<Access>{{from, bytes, false}, {to, bytes, true}};
      },
      [=] {
        if (bytes > 0) std::memmove(to, from, bytes);
      });
}

void SimulatedDevice::fill_zero(void* memory, std::size_t bytes, StreamHandle stream) {
  count(Call::fill_zero);
  put(
      stream, "fill_zero",
      [=] {
        return std::vector<Access>{{memory, bytes, true}};
      },
      [=] {
        if (bytes > 0) std::memset(memory, 0, bytes);
      });
}

void SimulatedDevice::launch_host_func(void (*function)(void*), void* data, StreamHandle stream) {
  count(Call::call);
  const auto run = [function, data] {
    function(data);
    return true;
  };
  streams_->enqueue(stream, {.what = "call", .accesses = nullptr, .run = run, .of_host = true});
}

namespace {

// A launch that owns what lies in host memory: the caller's arrays may change once the call has returned.
struct KeptLaunch {
  explicit KeptLaunch(const gpu::BucketLaunch& launch)
      : tensors(launch.tensors, launch.tensors + launch.n_tensors),
        first_tiles(launch.first_tiles, launch.first_tiles + launch.n_tensors + 1),
        kept(launch) {
    kept.tensors = tensors.data();
    kept.first_tiles = first_tiles.data();
  }
  KeptLaunch(const KeptLaunch&) = delete;
  KeptLaunch& operator=(const KeptLaunch&) = delete;

  std::vector<gpu::TensorArgument> tensors;
  std::vector<std::uint32_t> first_tiles;
  gpu::BucketLaunch kept;
};

}  // namespace

void SimulatedDevice::pack(const gpu::BucketLaunch& launch, StreamHandle stream) {
  count(Call::pack);
  const auto own = std::make_shared<const KeptLaunch>(launch);
  put(
      stream, "pack", [own] { return bucket_accesses(own->kept, gpu::Direction::pack); },
      [this, own] { kernels_.pack(own->kept); });
}

void SimulatedDevice::unpack(const gpu::BucketLaunch& launch, StreamHandle stream) {
  count(Call::unpack);
  const auto own = std::make_shared<const KeptLaunch>(launch);
  put(
      stream, "unpack", [own] { return bucket_accesses(own->kept, gpu::Direction::unpack); },
      [this, own] { kernels_.unpack(own->kept); });
}

void SimulatedDevice::accumulate(const gpu::BucketLaunch& launch, StreamHandle stream) {
  count(Call::accumulate);
  const auto own = std::make_shared<const KeptLaunch>(launch);
  put(
      stream, "accumulate", [own] { return accumulate_accesses(own->kept); }, [this, own] { kernels_.accumulate(own->kept); });
}

void SimulatedDevice::clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor,
                                  StreamHandle stream) {
  count(Call::clip_factor);
  put(
      stream, "clip_factor",
      [=] {
        return std::vector<Access>{{statistics, n * sizeof(gpu::Statistics), false}, {factor, sizeof(double), true}};
      },
      [=, this] { kernels_.clip_factor(statistics, n, limit, factor); });
}

void SimulatedDevice::sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total,
                                     StreamHandle stream) {
  count(Call::sum_statistics);
  put(
      stream, "sum_statistics",
      [=] {
        return std::vector<Access>{{partials, n * sizeof(gpu::Statistics), false}, {total, sizeof(gpu::Statistics), true}};
      },
      [=, this] { kernels_.sum_statistics(partials, n, total); });
}

void SimulatedDevice::reduce(void* out, const void* const* sources, int n, std::size_t count_of_elements, tnt_dtype_t dtype,
                             StreamHandle stream) {
  count(Call::reduce);
  const std::vector<const void*> from(sources, sources + n);
  const std::size_t bytes = count_of_elements * dtype_size(dtype);
  std::vector<Access> accesses{{out, bytes, true}};
  for (const void* source : from) accesses.push_back({source, bytes, false});
  put(
      stream, "reduce", [accesses] { return accesses; },
      [=, this] { kernels_.reduce(out, from.data(), n, count_of_elements, dtype); });
}

}  // namespace tnt::testing

void tnt_simulated_enqueue(void* stream, const void* const* reads, const size_t* read_bytes, size_t n_reads,
                           void* const* writes, const size_t* write_bytes, size_t n_writes, int (*try_run)(void* data),
                           void (*destroy)(void* data), void* data, const char* what) {
  using tnt::testing::Access;
  using tnt::testing::SimulatedStreams;
  const std::shared_ptr<void> held(data, destroy);
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < n_reads; ++i) accesses.push_back({reads[i], read_bytes[i], false});
  for (std::size_t i = 0; i < n_writes; ++i) accesses.push_back({writes[i], write_bytes[i], true});
  SimulatedStreams* streams = SimulatedStreams::of(stream);
  if (streams == nullptr) {
    ADD_FAILURE() << what << " was enqueued on " << stream << ", which is no stream";
    return;
  }
  streams->enqueue(stream, {what, [accesses] { return accesses; }, [held, try_run] { return try_run(held.get()) != 0; }});
}

void* tnt_simulated_current() { return tnt::testing::SimulatedDevice::entered(); }
void* tnt_simulated_allocate(size_t bytes) { return tnt::testing::SimulatedDevice::allocate_at_once(bytes); }
void tnt_simulated_release(void* memory) { tnt::testing::SimulatedDevice::release_at_once(memory); }

int tnt_simulated_capturing(void* stream) {
  auto* const streams = tnt::testing::SimulatedStreams::of(stream);
  return streams != nullptr && streams->capturing(stream) ? 1 : 0;
}
