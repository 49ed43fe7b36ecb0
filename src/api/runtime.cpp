#include "api/runtime.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>

#include "api/boundary.hpp"
#include "base/clock.hpp"
#include "base/host_cache.hpp"

namespace tnt {
namespace {

struct Registry {
  std::mutex mutex;
  std::unique_ptr<Runtime> runtime;
  std::atomic<Runtime*> current{nullptr};  // the same runtime, for collectives, which must not lock
};

Registry& registry() {
  static Registry instance;
  return instance;
}

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
  const tnt_init_options_t given = read_struct<tnt_init_options_t>(*options, TNT_INIT_OPTIONS_INITIALIZER);
  Settings settings = read_settings(Place::from_caller);
  settings.rank = given.rank;
  settings.ranks = given.ranks;
  settings.rendezvous = given.rendezvous == nullptr ? "" : given.rendezvous;
  settings.token = given.token == nullptr ? "" : given.token;
  settings.join_timeout = given.join_timeout;
  if (!(settings.join_timeout >= 0 && settings.join_timeout <= 1e9)) {
    fail(TNT_INVALID_ARGUMENT, "join_timeout {}: expected a number of seconds, or 0", settings.join_timeout);
  }
  if (settings.ranks < 1 || settings.rank < 0 || settings.rank >= settings.ranks) {
    fail(TNT_INVALID_ARGUMENT, "rank {} of {} ranks is invalid", settings.rank, settings.ranks);
  }
  if (settings.ranks > 1 && (settings.rendezvous.empty() || settings.token.empty())) {
    fail(TNT_INVALID_ARGUMENT, "{} ranks need a rendezvous and a token", settings.ranks);
  }
  return settings;
}

}  // namespace

void set_last_error(const std::string& text) noexcept { last_error() = text; }

Runtime::Runtime(Settings settings, JoinedJob joined)
    : settings_(std::move(settings)),
      network_(std::move(joined.network)),
      trace_(settings_.timeline, job_name(settings_), settings_.rank) {
  world_.communicator = std::move(joined.communicator);
}

Runtime::~Runtime() {
  if (network_ && world_.communicator->async_error()) network_->skip_finalize();
}

Runtime& Runtime::get() { return required(registry().current.load(), "tnt_init has not been called: the runtime"); }

}  // namespace tnt

using namespace tnt;

extern "C" {

tnt_status_t tnt_init(const tnt_init_options_t* options) {
  return guarded([&] {
    const std::scoped_lock lock(registry().mutex);
    if (registry().runtime) return;
    Settings settings = settings_from(options);
    JoinedJob joined = join_job(settings, options != nullptr);
    registry().runtime = std::make_unique<Runtime>(std::move(settings), std::move(joined));
    registry().current = registry().runtime.get();
  });
}

tnt_status_t tnt_finalize(void) {
  return guarded([&] {
    const std::scoped_lock lock(registry().mutex);
    if (!registry().runtime) return;
    registry().current = nullptr;
    const std::unique_ptr<Runtime> runtime = std::move(registry().runtime);
    runtime->trace().write();
  });
}

const char* tnt_version(void) { return TNT_VERSION_TEXT; }

tnt_status_t tnt_setting(const char* name, const char* value, const char** canonical) {
  return guarded([&] {
    thread_local std::string text;
    text = canonical_setting(&required(name, "name"), value);
    required(canonical, "canonical") = text.c_str();
  });
}

const char* tnt_status_name(tnt_status_t status) { return status_name(status); }

const char* tnt_tuning_file(void) {
  thread_local std::string path;
  path = host_cache_file([](const char* name) -> const char* { return std::getenv(name); }, "tuning");
  return path.c_str();
}

size_t tnt_dtype_size(tnt_dtype_t dtype) { return dtype_size(dtype); }

tnt_status_t tnt_device_count(int* count, const char** why) {
  return guarded([&] {
    required(count, "count") = device_count();
    if (why != nullptr) *why = why_no_device().c_str();
  });
}

const char* tnt_last_error(void) { return last_error().c_str(); }

int64_t tnt_clock_ns(void) { return now_ns(); }

tnt_status_t tnt_trace_span(const char* track, const char* name, int64_t begin_ns, int64_t end_ns) {
  return guarded([&] {
    Trace& trace = Runtime::get().trace();
    required(track, "track");
    required(name, "name");
    if (trace.enabled()) trace.add({track, name, begin_ns, end_ns});
  });
}

}  // extern "C"
