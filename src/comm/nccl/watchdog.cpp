#include "comm/nccl/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "comm/error_messages.hpp"

namespace tnt {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double busy_tick = 0.02;  // as often as waits in shared memory check
constexpr double idle_tick = 0.2;

// An asynchronous error of NCCL often means that a rank died. The host's transport can name that rank after a moment.
double async_error_grace(double timeout) { return std::min(1.5, timeout / 4); }

// If another rank's device is blocked, the rank that waits for the blocking operation names the cause best, so it may report
// first.
double blocked_grace(double timeout) { return std::min(6.0, 1.5 * timeout); }

double seconds_since(std::int64_t begin, std::int64_t now) { return static_cast<double>(now - begin) * 1e-9; }

}  // namespace

std::string describe_operation(const Call& call, std::uint64_t number, std::string_view detail) {
  std::string which = number > 0 ? fmt::format("operation {}", number) : "";
  if (!detail.empty()) which += fmt::format("{}{}", which.empty() ? "" : ", ", detail);
  return which.empty() ? describe(call) : fmt::format("{} ({})", describe(call), which);
}

Watchdog::Watchdog(Device& device, StreamHandle stream, Communicator& host, std::unique_ptr<Communicator> progress_exchange,
                   int rank, double timeout, WatchedComm& watched)
    : device_(device),
      stream_(stream),
      host_(host),
      watched_(watched),
      rank_(rank),
      timeout_(timeout),
      period_(std::min(1.0, timeout / 4)) {
  if (progress_exchange) {
    progress_exchange_ = std::make_unique<ProgressExchange>(std::move(progress_exchange), period_, timeout_,
                                                            [this](std::string* place) { return progress(place); });
  }
  thread_ = start_thread("tnt-nccl-watch", [this] { loop(); });
}

Watchdog::~Watchdog() { stop(); }

void Watchdog::stop() noexcept {
  if (!thread_.joinable()) return;
  if (progress_exchange_) progress_exchange_->leave();  // the thread may still use it
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// ---------------------------------------------------------------------------------------------- on the path of a step

void Watchdog::follow(StreamHandle stream) {
  Event event = next_begun_ ? std::move(*next_begun_) : take_event();
  next_begun_.reset();
  event.record(stream);
  event.wait_on(stream_);
  next_begun_ = std::move(event);
}

bool Watchdog::begin(const Call& call, std::string_view detail) {
  if (!next_begun_) {
    if (device_.capturing(stream_)) return false;
    next_begun_ = take_event();
    next_begun_->record(stream_);
  }
  Event begun = std::move(*next_begun_);
  next_begun_.reset();
  Event finished = take_event();
  const bool collective = call.kind != Call::send && call.kind != Call::recv;
  const std::scoped_lock lock(mutex_);
  const std::uint64_t number = collective ? ++progress_.started : 0;
  operations_.push_back({.call = call,
                         .number = number,
                         .detail = std::string(detail),
                         .begun = std::move(begun),
                         .finished = std::move(finished)});
  return true;
}

// Calls the device without the lock. If the device's queue is full, the call waits for work that only the watchdog can abort.
// The thread does not remove an operation before it is enqueued.
void Watchdog::end() {
  Operation* last = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    last = &operations_.back();
  }
  last->finished.record(stream_);
  last_finished_ = last->finished.get();
  const std::scoped_lock lock(mutex_);
  last->enqueued = true;
}

Event Watchdog::take_event() {
  const std::scoped_lock lock(mutex_);
  if (events_.empty()) return Event(device_);
  Event event = std::move(events_.back());
  events_.pop_back();
  return event;
}

// ---------------------------------------------------------------------------------------------- the end of the communication

void Watchdog::throw_if_aborted() const {
  if (!aborted_) return;
  const std::scoped_lock lock(mutex_);
  throw Error(*error_);
}

void Watchdog::set_error(const Error& error) {
  const std::scoped_lock lock(mutex_);
  if (error_) return;
  error_ = error;
  aborted_ = true;
  changed_.notify_all();
}

void Watchdog::wait_for_cause(const Error& error) const {
  const Deadline deadline(2 * async_error_grace(timeout_));  // longer than this rank's own thread waits for them
  do {
    throw_if_aborted();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (error.status() == TNT_SYSTEM && !deadline.passed());
}

void Watchdog::abort_and_throw(tnt_status_t status, const std::string& message) {
  set_error(abort_job(host_, status, message));
  throw_if_aborted();
  throw Error(status, message);
}

// ---------------------------------------------------------------------------------------------- the thread

void Watchdog::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !aborted_) {
    const double tick = std::min(operations_.empty() ? idle_tick : busy_tick, period_);
    changed_.wait_for(lock, Seconds(tick), [&] { return stopping_ || aborted_; });
    lock.unlock();
    try {
      check_once();
    } catch (const Error&) {  // every later call throws it
    }
    lock.lock();
  }
  lock.unlock();
  if (aborted_) watched_.abort();
}

void Watchdog::check_once() {
  if (const auto error = host_.async_error()) return set_error(*error);
  poll_operations();
  const std::int64_t now = now_ns();
  if (const auto async_error = watched_.async_error()) {
    if (async_error_ns_ == 0) async_error_ns_ = now;
    if (seconds_since(async_error_ns_, now) < async_error_grace(timeout_)) return;
    std::string where;
    (void)progress(&where);
    abort_and_throw(async_error->status(),
                    fmt::format("rank {}{}{}: {}", rank_, where.empty() ? "" : ": ", where, async_error->what()));
  }
  if (progress_exchange_) {
    if (const auto mismatch = find_mismatch(progress_exchange_->latest())) abort_and_throw(TNT_MISMATCH, *mismatch);
  }
  check_overdue(now);
}

void Watchdog::poll_operations() {
  try {
    while (poll_front()) {
    }
  } catch (const Error& error) {
    std::string where;
    (void)progress(&where);
    abort_and_throw(error.status(), fmt::format("rank {}: {}: {}", rank_, where, error.what()));
  }
}

// Only this thread removes operations, and they do not move in memory, so the device is queried without the lock.
bool Watchdog::poll_front() {
  Operation* first = nullptr;
  bool enqueued = false;
  {
    const std::scoped_lock lock(mutex_);
    if (operations_.empty()) return false;
    first = &operations_.front();
    enqueued = first->enqueued;
  }
  if (first->begun_ns == 0) {
    if (!first->begun.completed()) return false;
    first->begun_ns = now_ns();
    const std::scoped_lock lock(mutex_);
    progress_.begun = std::max(progress_.begun, first->number);
  }
  if (!enqueued || !first->finished.completed()) return false;
  const std::scoped_lock lock(mutex_);
  progress_.finished = std::max(progress_.finished, first->number);
  events_.push_back(std::move(first->begun));
  events_.push_back(std::move(first->finished));
  operations_.pop_front();
  overdue_ns_ = 0;
  return true;
}

void Watchdog::check_overdue(std::int64_t now) {
  std::string where;
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (operations_.empty()) return;
    const Operation& first = operations_.front();
    if (first.begun_ns == 0 || seconds_since(first.begun_ns, now) < timeout_) return;
    where = describe_operation(first.call, first.number, first.detail);
    number = first.number;
  }
  if (overdue_ns_ == 0) overdue_ns_ = now;
  // a rank that does not answer is named by the progress exchange's own wait, which began at about the same time
  const bool overdue = progress_exchange_ && progress_exchange_->overdue();
  if (overdue && seconds_since(overdue_ns_, now) < 2 * period_) return;
  Missing missing{.who = "its peer has not reached it, or the network between them is stuck"};
  if (overdue) {
    missing.who = "a rank does not answer (it may be stopped)";
  } else if (number > 0) {
    missing = find_missing(progress_exchange_ ? progress_exchange_->latest() : std::vector<Progress>(), number, rank_);
  }
  if (missing.blocked && seconds_since(overdue_ns_, now) < blocked_grace(timeout_)) return;
  abort_and_throw(TNT_TIMEOUT,
                  fmt::format("rank {}: {} has not finished within {} s: {}", rank_, where, timeout_, missing.who));
}

Progress Watchdog::progress(std::string* where) {
  const std::scoped_lock lock(mutex_);
  Progress result = progress_;
  result.rank = rank_;
  const auto first = std::find_if(operations_.begin(), operations_.end(), [](const auto& each) { return each.number > 0; });
  if (first != operations_.end()) result.next = first->call;
  if (!operations_.empty()) {
    const Operation& oldest = operations_.front();
    *where = describe_operation(oldest.call, oldest.number, oldest.detail);
  }
  return result;
}

}  // namespace tnt
