// Streams and events with exactly CUDA's rules: work runs later, in the order of its stream and after the events that the
// stream waits for, otherwise in any order, chosen by a seeded generator. Every memory access is compared with all earlier ones
// (ordering.hpp). Two accesses that the rules do not order are reported, in whatever order they ran.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "support/ordering.hpp"

namespace tnt::testing {

// When work runs. polls: in the threads that synchronize or query, so that a test of one thread is reproducible; nothing runs
// before. thread: in a thread of the device, as on a real device; for ranks, which wait for each other in collectives.
enum class Progress { polls, thread };

struct SimulationOptions {
  unsigned seed = 1;
  Progress progress = Progress::polls;
  double no_progress_timeout = 20.0;  // seconds without any progress after which a wait ends with an error
};

struct Work {
  std::string what;                               // for reports
  std::function<std::vector<Access>()> accesses;  // called when it is this work's turn
  std::function<bool()> run;                      // false: not yet, ask again
  bool of_host = false;                           // a host function: what the host does afterwards is ordered after it
};

class SimulatedStreams {
 public:
  SimulatedStreams(const void* owner, const SimulationOptions& options);
  ~SimulatedStreams();
  SimulatedStreams(const SimulatedStreams&) = delete;
  SimulatedStreams& operator=(const SimulatedStreams&) = delete;

  // The simulation that a stream belongs to; nullptr if it is not a stream, or not any more.
  [[nodiscard]] static SimulatedStreams* of(StreamHandle stream);
  [[nodiscard]] const void* owner() const { return owner_; }
  [[nodiscard]] Progress progress() const { return options_.progress; }

  [[nodiscard]] StreamHandle make_stream(Priority priority);
  void destroy_stream(StreamHandle stream);
  void enqueue(StreamHandle stream, Work work);
  [[nodiscard]] bool idle(StreamHandle stream);
  void synchronize(StreamHandle stream);
  [[nodiscard]] Priority priority_of(StreamHandle stream);
  [[nodiscard]] std::vector<std::string> enqueued_on(StreamHandle stream);
  void name(StreamHandle stream, const std::string& name);

  [[nodiscard]] EventHandle make_event();
  void destroy_event(EventHandle event);
  void record(EventHandle event, StreamHandle stream);
  void wait(StreamHandle stream, EventHandle event);
  [[nodiscard]] bool completed(EventHandle event);

  // Graphs: calls between begin and end of a capture do not run but are recorded for replay.
  class Capture;
  void begin_capture(StreamHandle stream);
  [[nodiscard]] std::shared_ptr<Capture> end_capture(StreamHandle stream);
  void replay(const std::shared_ptr<Capture>& graph, StreamHandle stream);
  [[nodiscard]] bool capturing(StreamHandle stream);
  void keep_in_graph(StreamHandle stream, std::shared_ptr<void> object);
  [[nodiscard]] bool any_capture();

  // The host accesses memory now.
  void host_access(const Access& access, const std::string& what);
  void report_leaks();
  void run_all();  // in the calling thread or the device's, until nothing more can run
  void report(const std::string& message);
  // Reports and throws: CUDA would return an error.
  [[noreturn]] void refuse(const std::string& message);
  [[nodiscard]] std::vector<std::string> take_reports();

 private:
  struct Moment;
  struct Stream;
  struct Step;
  struct Item;
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] std::shared_ptr<Stream> find(StreamHandle stream);
  [[nodiscard]] std::shared_ptr<Stream> default_stream(StreamHandle stream);
  [[nodiscard]] std::shared_ptr<Stream> new_stream(const std::string& name);
  [[nodiscard]] std::shared_ptr<Moment>& moment_of(EventHandle event);
  void put(const std::shared_ptr<Stream>& stream, Step step);
  void put_now(Stream& stream, Step step);
  void refuse_captured(const Stream& stream, const char* what);

  [[nodiscard]] bool step(Lock& lock);
  [[nodiscard]] bool try_front(Lock& lock, Stream& stream);
  [[nodiscard]] bool begin(Item& item);
  void poll(Lock& lock);
  void wait_until(Lock& lock, const std::function<bool()>& done, const std::string& what);
  void nap(Lock& lock);
  [[nodiscard]] bool all_idle() const;
  [[nodiscard]] std::string fronts() const;
  void work();

  [[nodiscard]] bool allowed(const Access& access, const Actor& actor);
  void note(const Access& access, const std::shared_ptr<const Actor>& actor, const Clock& clock);
  void add_report(const std::string& message);

  const void* owner_;
  const SimulationOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_;
  std::map<StreamHandle, std::shared_ptr<Stream>> by_handle_;
  std::map<std::thread::id, std::shared_ptr<Stream>> default_streams_;  // of each thread; of no thread: the legacy one
  std::vector<std::shared_ptr<Stream>> streams_;  // including those of graphs, and destroyed streams with unfinished work
  std::map<EventHandle, std::shared_ptr<Moment>> events_;
  std::size_t components_ = 1;  // the host is component 0
  std::uint64_t works_ = 0;
  std::uint64_t host_tick_ = 0;
  Clock host_clock_;
  AccessHistory history_;
  std::vector<std::string> reports_;
  std::int64_t progress_ns_ = 0;  // time of the last progress
  bool running_ = false;          // a thread runs work, with the mutex released
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace tnt::testing
