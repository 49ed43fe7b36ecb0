#include "api/runtime.hpp"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "base/clock.hpp"
#include "base/forks.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "common/non_copyable.hpp"

namespace tnt {
namespace {

struct Registry {
  std::mutex mutex;
  std::unique_ptr<Runtime> runtime;
  std::atomic<Runtime*> current{nullptr};  // the same runtime, for collectives, which must not lock
  std::atomic<tnt_comm_t> world{nullptr};  // the handle of its communicator
  std::atomic<int> pid{0};                 // of the rank
  std::mutex grown_mutex;
  std::vector<tnt_comm_t> grown;  // of make_grown; some may be destroyed
};

// Never destroyed: other threads may still be in a call when the process exits.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

std::vector<tnt_comm_t> take_grown() {
  const std::scoped_lock lock(registry().grown_mutex);
  return std::exchange(registry().grown, {});
}

// A rank that exits without tnt_finalize leaves the job. Its forks, which have no part in it, must not.
struct LeaveAtExit : NonCopyable {
  ~LeaveAtExit() {
    if (is_fork_of_rank() || registry().current == nullptr) return;
    for (const tnt_comm_t comm : take_grown()) {
      try {
        destroy_handle(comm);
      } catch (const Error&) {  // it is destroyed, or as below
      }
    }
    try {
      destroy_handle(registry().world.load());
    } catch (const Error&) {  // a thread is inside a collective: the other ranks notice that this process ends
      return;
    }
    registry().current = nullptr;
    try {  // the runtime stays: a reducer that was not destroyed may be in the middle of a bucket, and uses the timeline
      registry().runtime->trace().stop();
    } catch (const Error& error) {
      log(LogLevel::warning, "{}", error.what());
    }
  }
};

std::string& last_error() {
  thread_local std::string text;
  return text;
}

// Identifies the job in the timeline. Never the token, which is a secret.
std::string job_name(const Settings& settings) {
  return settings.rendezvous.empty() ? fmt::format("process at {}", now_ns()) : settings.rendezvous;
}

Settings settings_from(const tnt_init_options_t* options) {
  if (options == nullptr) return read_settings(Place::from_environment);
  check_struct_size(options->size, offsetof(tnt_init_options_t, join_timeout), "options", "TNT_INIT_OPTIONS_INITIALIZER");
  const auto given = read_struct<tnt_init_options_t>(*options, TNT_INIT_OPTIONS_INITIALIZER);
  Settings settings = read_settings(Place::from_caller);
  settings.join_timeout = given.join_timeout;
  if (!(settings.join_timeout >= 0 && settings.join_timeout <= 1e9)) {
    fail(TNT_INVALID_ARGUMENT, "join_timeout {}: expected a number of seconds, or 0", settings.join_timeout);
  }
  if (given.mpi_comm != nullptr) return settings;  // MPI says the rest
  settings.rank = given.rank;
  settings.ranks = given.ranks;
  settings.rendezvous = given.rendezvous == nullptr ? "" : given.rendezvous;
  settings.token = given.token == nullptr ? "" : given.token;
  if (settings.ranks < 1 || settings.rank < 0 || settings.rank >= settings.ranks) {
    fail(TNT_INVALID_ARGUMENT, "rank {} of {} ranks is invalid", settings.rank, settings.ranks);
  }
  if (settings.ranks > 1 && (settings.rendezvous.empty() || settings.token.empty())) {
    fail(TNT_INVALID_ARGUMENT, "{} ranks need a rendezvous and a token", settings.ranks);
  }
  return settings;
}

const void* mpi_comm_of(const tnt_init_options_t* options) {
  return options == nullptr ? nullptr : read_struct<tnt_init_options_t>(*options, TNT_INIT_OPTIONS_INITIALIZER).mpi_comm;
}

}  // namespace

void set_last_error(const std::string& text) noexcept { last_error() = text; }

void fail_in_fork() {
  const Runtime* const of = registry().current.load();
  fail(TNT_UNSUPPORTED,
       "process {} is a fork of {} (process {}) and cannot communicate: call this in the rank itself, or start another program "
       "instead of a fork",
       getpid(), of == nullptr ? "a rank that was joining or leaving" : fmt::format("rank {}", of->settings().rank),
       registry().pid.load());
}

Runtime::Runtime(Settings settings, std::shared_ptr<FlightRecorder> recorder)
    : settings_(std::move(settings)), trace_(job_name(settings_), settings_.rank), recorder_(std::move(recorder)) {
  trace_.start(settings_.timeline);
}

Settings Runtime::settings_to_meet(double timeout) const {
  Settings settings = settings_;
  settings.join_timeout = timeout > 0 ? timeout : settings.timeout;
  settings.flight_record.clear();  // its ranks are not those that the launcher has started
  if (settings.transport == TransportChoice::mpi || settings.transport == TransportChoice::mpi_native ||
      settings.transport == TransportChoice::mpi_auto) {
    settings.transport = TransportChoice::automatic;  // MPI knows no newcomers
  }
  return settings;
}

std::shared_ptr<ProgressEngine> Runtime::progress_engine() {
  const std::scoped_lock lock(mutex_);
  auto engine = progress_engine_.lock();
  if (!engine) progress_engine_ = engine = std::make_shared<ProgressEngine>();
  return engine;
}

Runtime& Runtime::get() { return required(registry().current.load(), "tnt_init has not been called: the runtime"); }

tnt_comm_t Runtime::world_handle() {
  const tnt_comm_t handle = registry().world.load();
  if (handle == nullptr) fail(TNT_INVALID_ARGUMENT, "tnt_init has not been called: there is no communicator of all ranks");
  return handle;
}

bool Runtime::is_world(tnt_comm_t handle) noexcept { return handle != nullptr && handle == registry().world.load(); }

namespace {

tnt_comm_t make_handle_of(std::unique_ptr<tnt_comm> comm) {
  Executor& executor = comm->executor;
  return make_handle(std::move(comm), &executor);
}

}  // namespace

tnt_comm_t make_comm(JoinedJob joined, int rank) {
  return make_handle_of(std::make_unique<tnt_comm>(std::move(joined.communicator), rank, std::move(joined.network)));
}

tnt_comm_t make_grown(JoinedJob joined, int rank, double timeout) {
  const tnt_comm_t made = make_comm(std::move(joined), rank);
  HandleUse(made)->timeout = timeout;
  const std::scoped_lock lock(registry().grown_mutex);
  registry().grown.push_back(made);
  return made;
}

tnt_comm_t make_part(const tnt_comm& of, std::unique_ptr<Communicator> communicator) {
  auto part = std::make_unique<tnt_comm>(std::move(communicator), of.rank_in_job, nullptr);
  part->timeout = of.timeout.load();
  return make_handle_of(std::move(part));
}

}  // namespace tnt

using namespace tnt;

extern "C" {

tnt_status_t tnt_init(const tnt_init_options_t* options) {
  return guarded([&] {
    const std::scoped_lock lock(registry().mutex);
    if (registry().runtime) return;
    Settings settings = settings_from(options);
    Trace::check_file(settings.timeline, "TNT_TIMELINE");
    registry().pid = getpid();
    set_rank(true);
    try {
      JoinedJob joined = join_job(settings, options != nullptr, mpi_comm_of(options));
      auto runtime = std::make_unique<Runtime>(std::move(settings), std::move(joined.recorder));
      const tnt_comm_t world = make_comm(std::move(joined), runtime->settings().rank);
      registry().runtime = std::move(runtime);
      registry().current = registry().runtime.get();
      registry().world = world;
      static const LeaveAtExit at_exit;  // made after MPI has set its own end, and so comes before it
    } catch (...) {
      set_rank(false);
      throw;
    }
  });
}

tnt_status_t tnt_set_log_callback(tnt_log_callback_t callback, void* user_data) {
  return guarded_in_forks([&] {
    if (callback == nullptr) return set_log_sink({});
    set_log_sink([=](LogLevel level, int rank, const std::string& text) {
      callback(static_cast<tnt_log_level_t>(level), rank, text.c_str(), user_data);
    });
  });
}

tnt_status_t tnt_finalize(void) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] {
    refuse_in_group("tnt_finalize");
    const std::scoped_lock lock(registry().mutex);
    if (!registry().runtime) return;
    handles().destroy_all();
    (void)take_grown();
    registry().current = nullptr;
    registry().world = nullptr;
    const std::unique_ptr<Runtime> runtime = std::move(registry().runtime);
    set_rank(false);
    runtime->trace().stop();
  });
}

const char* tnt_version(void) { return TNT_VERSION_TEXT; }

int tnt_version_number(void) { return TNT_VERSION_NUMBER; }

tnt_status_t tnt_setting(const char* name, const char* value, const char** canonical) {
  return guarded_in_forks([&] {
    thread_local std::string text;
    text = canonical_setting(&required(name, "name"), value);
    required(canonical, "canonical") = text.c_str();
  });
}

const char* tnt_status_name(tnt_status_t status) { return status_name(status); }

const char* tnt_tuning_file(void) {
  thread_local std::vector<char> text;
  const std::string path = host_cache_file([](const char* name) -> const char* { return std::getenv(name); }, "tuning");
  text.assign(path.c_str(), path.c_str() + path.size() + 1);
  return text.data();
}

size_t tnt_dtype_size(tnt_dtype_t dtype) { return dtype_size(dtype); }

tnt_status_t tnt_device_count(int* count, const char** why) {
  return guarded_in_forks([&] {
    required(count, "count") = device_count();
    if (why != nullptr) *why = why_no_device().c_str();
  });
}

tnt_status_t tnt_device_check(int device) {
  return guarded([&] { (void)open_device(device); });
}

const char* tnt_last_error(void) { return last_error().c_str(); }

int64_t tnt_clock_ns(void) { return now_ns(); }

tnt_status_t tnt_trace_span(const char* track, const char* name, int64_t begin_ns, int64_t end_ns) {
  return guarded([&] {
    const HandleUse world(Runtime::world_handle());  // keeps the runtime
    Trace& trace = Runtime::get().trace();
    required(track, "track");
    required(name, "name");
    if (trace.enabled()) trace.add({.track = track, .name = name, .begin_ns = begin_ns, .end_ns = end_ns});
  });
}

tnt_status_t tnt_timeline_start(const char* file) {
  return guarded([&] {
    const std::string name = &required(file, "file");
    if (name.empty()) fail(TNT_INVALID_ARGUMENT, "tnt_timeline_start: the file has no name");
    const HandleUse world(Runtime::world_handle());  // keeps the runtime
    Trace::check_file(name, "tnt_timeline_start");
    Runtime::get().trace().start(name);
  });
}

tnt_status_t tnt_timeline_stop(void) {
  return guarded([&] {
    const HandleUse world(Runtime::world_handle());  // keeps the runtime
    Runtime::get().trace().stop();
  });
}

tnt_status_t tnt_progress(uint64_t step, double samples) {
  return guarded([&] {
    if (!(samples >= 0)) fail(TNT_INVALID_ARGUMENT, "samples is {}, not a number of samples", samples);
    const HandleUse world(Runtime::world_handle());  // keeps the runtime
    if (FlightRecorder* const recorder = Runtime::get().recorder()) recorder->progress(step, samples);
  });
}

}  // extern "C"
