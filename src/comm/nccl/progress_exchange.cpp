#include "comm/nccl/progress_exchange.hpp"

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "comm/error_messages.hpp"

namespace tnt {

ProgressExchange::ProgressExchange(std::unique_ptr<Communicator> host, double period, double timeout, LocalProgress own)
    : host_(std::move(host)), period_(period), timeout_(timeout), own_(std::move(own)), round_ns_(now_ns()) {
  thread_ = start_thread("tnt-progress", [this] { loop(); });
}

ProgressExchange::~ProgressExchange() {
  leave();
  thread_.join();
}

void ProgressExchange::leave() noexcept {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  const auto limit = std::chrono::duration<double>(2 * period_ + 1);
  if (!changed_.wait_for(lock, limit, [&] { return over_; })) host_->cancel();
}

std::vector<Progress> ProgressExchange::latest() const {
  const std::scoped_lock lock(mutex_);
  return latest_;
}

bool ProgressExchange::overdue() const {
  const std::scoped_lock lock(mutex_);
  return !over_ && static_cast<double>(now_ns() - round_ns_) > 2e9 * period_;
}

void ProgressExchange::loop() {
  try {
    while (round()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(period_), [&] { return leaving_; });
    }
  } catch (const Error&) {  // the job was aborted, which the watchdog will notice, or this rank leaves
  }
  const std::scoped_lock lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

bool ProgressExchange::round() {
  std::string operation;
  Progress own = own_(&operation);
  {
    const std::scoped_lock lock(mutex_);
    own.leaving = leaving_ ? 1 : 0;
  }
  std::vector<Progress> latest(static_cast<std::size_t>(host_->size()));
  host_->run({{.kind = Call::all_gather, .count = sizeof(Progress)}, &own, latest.data()},
             {.timeout = timeout_, .detail = operation});
  bool last = false;
  for (const Progress& entry : latest) last = last || entry.leaving != 0;
  const std::scoped_lock lock(mutex_);
  latest_ = std::move(latest);
  round_ns_ = now_ns();
  return !last;
}

Missing find_missing(const std::vector<Progress>& latest, std::uint64_t number, int rank) {
  Missing behind{.who = "", .blocked = true};
  const auto add = [&](const std::string& text, bool blocked = false) {
    behind.who += fmt::format("{}{}", behind.who.empty() ? "" : ", ", text);
    behind.blocked = behind.blocked && blocked;
  };
  for (const Progress& entry : latest) {
    if (entry.rank == rank) continue;
    if (entry.leaving != 0 && entry.started < number) {
      add(fmt::format("rank {} has destroyed its communicator after {} operations", entry.rank, entry.started));
    } else if (entry.started < number) {
      add(fmt::format("rank {} has started only {} operations", entry.rank, entry.started));
    } else if (entry.begun < number) {
      add(fmt::format("rank {} has started it, but its device has not reached it", entry.rank), true);
    }
  }
  if (!behind.who.empty()) return behind;
  return {.who =
              "all ranks have started it: a device or the network between them is stuck (NCCL_DEBUG=INFO tells more), or ranks "
              "use several communicators in different orders"};
}

std::optional<std::string> find_mismatch(const std::vector<Progress>& latest) {
  for (std::size_t later = 1; later < latest.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      const Progress& one = latest[earlier];
      const Progress& other = latest[later];
      const bool both_wait = one.started > one.finished && other.started > other.finished;
      if (!both_wait || one.finished != other.finished || one.next == other.next) continue;
      return mismatch_message(other.rank, other.next, one.rank, one.next, one.finished + 1);
    }
  }
  return std::nullopt;
}

}  // namespace tnt
