#include "comm/shm/peer_monitor.hpp"

#include "comm/error_messages.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {
namespace {

// A rank that waits itself is not to blame. It has this long to name the one for which it waits: it may have begun to wait
// later, and it asks that one for a second.
constexpr std::int64_t blame_ns = 4'000'000'000;

}  // namespace

std::optional<Error> PeerMonitor::async_error() const {
  if (auto error = world_->async_error()) return error;
  for (ErrorRecord* record : {own_, followed_}) {
    if (record == nullptr) continue;
    if (auto error = record->read()) return error;
  }
  return std::nullopt;
}

void PeerMonitor::throw_if_aborted() const {
  if (auto error = async_error()) throw Error(*error);
}

void PeerMonitor::abort(tnt_status_t status, const std::string& message) noexcept {
  if (scope_ == ErrorScope::job) return world_->abort(status, message);
  own_->write(status, message);
}

void PeerMonitor::check(const WaitInfo& info, const Deadline& deadline) {
  throw_if_aborted();
  if (cancelled_) fail(TNT_ABORTED, "{} was cancelled: its communicator is being destroyed", info.waiter());
  for (std::size_t member = 0; member < info.members.size(); ++member) {
    if (!info.missing(member)) continue;
    const int rank = info.members[member];
    const ShmWorld::PeerStatus status = world_->peer_status(rank);
    if (status == ShmWorld::PeerStatus::alive || !info.missing(member)) continue;  // it arrived before it left
    abort_and_throw(TNT_PEER_LOST, status == ShmWorld::PeerStatus::left
                                       ? left_message(rank, info.waiter())
                                       : fmt::format("rank {} (process {}) died while {} waited for it", rank,
                                                     world_->pid(rank), info.waiter()));
  }
  if (!deadline.passed()) return;
  std::vector<int> missing;
  for (std::size_t member = 0; member < info.members.size(); ++member) {
    if (info.missing(member)) missing.push_back(info.members[member]);
  }
  if (now_ns() < deadline.end_ns() + blame_ns && world_->all_wait(missing)) return;
  abort_and_throw(TNT_TIMEOUT, timeout_message(missing, deadline.seconds(), info.waiter()));
}

void PeerMonitor::abort_and_throw(tnt_status_t status, const std::string& message) {
  abort(status, message);
  // another rank may have aborted first, and all ranks report the same error; writing its message takes a moment at most
  for (int i = 0; i < 1000; ++i) {
    throw_if_aborted();
    yield_core();
  }
  throw Error(status, message);
}

}  // namespace tnt
