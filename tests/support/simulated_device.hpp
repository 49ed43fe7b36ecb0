// A device for tests that follows CUDA's ordering rules and checks that they are kept. Its memory is not accessible to the host
// (simulated_memory.hpp). Its streams run work later, in any order that the rules allow (simulated_streams.hpp). A violated
// rule makes the test fail when the device is destroyed, unless the test takes the reports:
//
//   order          two accesses to the same bytes, one a write, not ordered by a stream, an event or a wait of the host
//   memory         access past an end or after release, release while in use, another device's memory, not pinned
//   leaks          memory, streams and events that are not released
//   captures       calls that CUDA refuses while a stream is captured
//   progress       work that never ends
//
// The default streams are those of CUDA: they belong to the calling thread's current device, cudaStreamPerThread also to the
// thread. That the legacy one waits for other streams is not imitated.
//
// The host's own accesses to pinned memory are checked if they are declared with host_reads and host_writes. All threads of the
// host count as one here, in the order of their calls: the thread sanitizer checks their order.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "support/simulated_kernels.hpp"
#include "support/simulated_streams.hpp"

namespace tnt::testing {

enum class Call {
  allocate,
  allocate_pinned,
  make_stream,
  idle,
  synchronize,
  make_event,
  record,
  wait,
  completed,
  copy,
  fill_zero,
  call,
  pack,
  unpack,
  accumulate,
  sum_statistics,
  clip_factor,
  reduce,
  pointer_attributes,
  capturing,
  last = capturing
};

struct Bytes {
  const void* memory = nullptr;
  std::size_t count = 0;
};

enum class Failure { of_device, of_host_memory };

class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(int index = 0, const SimulationOptions& options = {}, const Kernels& kernels = cpu_kernels());
  ~SimulatedDevice() override;

  // Work of the test, such as a trainer's kernels: run is called later, and accesses the given ranges.
  void enqueue(StreamHandle stream, const std::vector<Bytes>& reads, const std::vector<Bytes>& writes,
               std::function<void()> run, const std::string& what);
  void host_reads(const void* memory, std::size_t bytes, const std::string& what = "reads");
  void host_writes(const void* memory, std::size_t bytes, const std::string& what = "writes");
  // The test's own access to device memory, done immediately. Accesses that are not ordered before it are reported.
  void read(void* to, const void* memory, std::size_t bytes);
  void write(void* memory, const void* from, std::size_t bytes);
  template <typename T>
  [[nodiscard]] std::vector<T> values(const void* memory, std::size_t count) {
    std::vector<T> values(count);
    read(values.data(), memory, count * sizeof(T));
    return values;
  }

  using Graph = std::shared_ptr<SimulatedStreams::Capture>;
  void begin_capture(StreamHandle stream) { streams_->begin_capture(stream); }
  [[nodiscard]] Graph end_capture(StreamHandle stream) { return streams_->end_capture(stream); }
  void replay(const Graph& graph, StreamHandle stream) { streams_->replay(graph, stream); }

  // The nth such call from now on does nothing and throws TNT_SYSTEM, or std::bad_alloc as any code of the host may.
  void fail_at(Call kind, int nth = 1, Failure failure = Failure::of_device);
  [[nodiscard]] int calls(Call kind);  // so far
  [[nodiscard]] std::vector<std::string> enqueued_on(StreamHandle stream) { return streams_->enqueued_on(stream); }
  [[nodiscard]] std::vector<std::string> take_ranges();  // "begin NAME" and "end", in the order of the calls
  [[nodiscard]] Priority priority_of(StreamHandle stream) { return streams_->priority_of(stream); }
  void run_all() { streams_->run_all(); }
  [[nodiscard]] std::vector<std::string> take_reports() { return streams_->take_reports(); }
  void name_memory(const void* memory, const std::string& name);  // for reports
  void name_stream(StreamHandle stream, const std::string& name) { streams_->name(stream, name); }

  static void set_current(int index);               // the calling thread's current device, 0 at first
  [[nodiscard]] static SimulatedDevice* entered();  // by the calling thread (with_current_device); or null
  // Memory of the entered device, without a stream, like cudaMalloc and cudaFree. Returns null if no device is entered or the
  // allocation fails. The released memory must not be in use.
  [[nodiscard]] static void* allocate_at_once(std::size_t bytes);
  static void release_at_once(void* memory);

  [[nodiscard]] int index() const noexcept override { return index_; }
  void with_current_device(const std::function<void()>& body) override;
  [[nodiscard]] void* allocate(std::size_t bytes, StreamHandle stream) override;
  void release(void* memory, StreamHandle stream) noexcept override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  [[nodiscard]] PointerAttributes pointer_attributes(const void* memory) override;
  [[nodiscard]] StreamHandle make_stream(Priority priority) override;
  void destroy_stream(StreamHandle stream) noexcept override;
  [[nodiscard]] bool idle(StreamHandle stream) override;
  void synchronize(StreamHandle stream) override;
  [[nodiscard]] int device_of(StreamHandle stream) override;
  [[nodiscard]] bool capturing(StreamHandle stream) override;
  [[nodiscard]] EventHandle make_event() override;
  [[nodiscard]] EventHandle make_timed_event() override;
  void destroy_event(EventHandle event) noexcept override;
  void record(EventHandle event, StreamHandle stream) override;
  void wait(StreamHandle stream, EventHandle event) override;
  [[nodiscard]] bool completed(EventHandle event) override;
  [[nodiscard]] double seconds_between(EventHandle begin, EventHandle end) override;
  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override;
  void fill_zero(void* memory, std::size_t bytes, StreamHandle stream) override;
  void launch_host_func(void (*function)(void*), void* data, StreamHandle stream) override;
  void begin_range(const char* name) noexcept override;
  void end_range() noexcept override;
  void keep_in_graph(StreamHandle stream, std::shared_ptr<void> object) override {
    streams_->keep_in_graph(stream, std::move(object));
  }
  void pack(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void unpack(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void accumulate(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total, StreamHandle stream) override;
  void clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor,
                   StreamHandle stream) override;
  void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, StreamHandle stream) override;

 private:
  struct Count {
    int calls = 0;
    int fail_at = 0;  // the number of the call that fails, counted from the first; 0: none
    Failure failure = Failure::of_device;
  };
  void count(Call kind);
  void put(StreamHandle stream, const char* what, std::function<std::vector<Access>()> accesses, std::function<void()> run);
  void release_block(void* memory);
  void look_for_leaks();

  int index_;
  const Kernels& kernels_;
  std::mutex mutex_;                                          // of counts_, ranges_ and times_
  std::map<EventHandle, std::optional<std::int64_t>> times_;  // of timed events
  std::vector<std::string> ranges_;
  std::array<Count, static_cast<std::size_t>(Call::last) + 1> counts_{};
  std::unique_ptr<SimulatedStreams> streams_;
};

}  // namespace tnt::testing
