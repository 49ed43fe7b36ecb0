#include "comm/nccl/progress_board.hpp"

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "comm/error_messages.hpp"

namespace tnt {

ProgressBoard::ProgressBoard(std::unique_ptr<Communicator> host, double period, double timeout, Own own)
    : host_(std::move(host)), period_(period), timeout_(timeout), own_(std::move(own)), round_ns_(now_ns()) {
  thread_ = start_thread("tnt-progress", [this] { loop(); });
}

ProgressBoard::~ProgressBoard() {
  leave();
  thread_.join();
}

void ProgressBoard::leave() noexcept {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  const auto limit = std::chrono::duration<double>(2 * period_ + 1);
  if (!changed_.wait_for(lock, limit, [&] { return over_; })) host_->cancel();
}

std::vector<Progress> ProgressBoard::words() const {
  const std::scoped_lock lock(mutex_);
  return words_;
}

bool ProgressBoard::late() const {
  const std::scoped_lock lock(mutex_);
  return !over_ && static_cast<double>(now_ns() - round_ns_) > 2e9 * period_;
}

void ProgressBoard::loop() {
  try {
    while (round()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(period_), [&] { return leaving_; });
    }
  } catch (const Error&) {  // has ended the job's communication, where the watchdog finds it; or this rank is leaving
  }
  const std::scoped_lock lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

bool ProgressBoard::round() {
  std::string place;
  Progress own = own_(&place);
  {
    const std::scoped_lock lock(mutex_);
    own.leaving = leaving_ ? 1 : 0;
  }
  std::vector<Progress> words(static_cast<std::size_t>(host_->size()));
  host_->all_gather(&own, words.data(), sizeof(Progress), TNT_UINT8, {.timeout = timeout_, .detail = place});
  bool last = false;
  for (const Progress& word : words) last = last || word.leaving != 0;
  const std::scoped_lock lock(mutex_);
  words_ = std::move(words);
  round_ns_ = now_ns();
  return !last;
}

Missing who_is_missing(const std::vector<Progress>& words, std::uint64_t number, int rank) {
  Missing behind{.who = "", .held = true};
  const auto add = [&](const std::string& text, bool held = false) {
    behind.who += fmt::format("{}{}", behind.who.empty() ? "" : ", ", text);
    behind.held = behind.held && held;
  };
  for (const Progress& word : words) {
    if (word.rank == rank) continue;
    if (word.leaving != 0 && word.started < number) {
      add(fmt::format("rank {} has destroyed its communicator after {} operations", word.rank, word.started));
    } else if (word.started < number) {
      add(fmt::format("rank {} has started only {} operations", word.rank, word.started));
    } else if (word.begun < number) {
      add(fmt::format("rank {} has started it, but its device has not come to it", word.rank), true);
    }
  }
  if (!behind.who.empty()) return behind;
  return {.who = "all ranks have started it: a device or the network between them is stuck (NCCL_DEBUG=INFO tells more)"};
}

std::optional<std::string> find_mismatch(const std::vector<Progress>& words) {
  for (std::size_t later = 1; later < words.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      const Progress& one = words[earlier];
      const Progress& other = words[later];
      const bool both_wait = one.started > one.finished && other.started > other.finished;
      if (!both_wait || one.finished != other.finished || one.next == other.next) continue;
      return mismatch_message(other.rank, other.next, one.rank, one.next, one.finished + 1);
    }
  }
  return std::nullopt;
}

}  // namespace tnt
