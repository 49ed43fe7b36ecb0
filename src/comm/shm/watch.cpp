#include "comm/shm/watch.hpp"

#include "comm/error_messages.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

void Watch::throw_if_aborted() const {
  if (auto error = world_->aborted()) throw Error(*error);
}

void Watch::check(const Wanted& wanted, const Deadline& deadline) {
  throw_if_aborted();
  if (cancelled_) fail(TNT_ABORTED, "{}: given up, as its communicator is being destroyed", wanted.place());
  for (std::size_t member = 0; member < wanted.members.size(); ++member) {
    if (!wanted.missing(member)) continue;
    const int rank = wanted.members[member];
    const ShmWorld::Peer peer = world_->peer(rank);
    if (peer == ShmWorld::Peer::alive || !wanted.missing(member)) continue;  // it came before it went
    end_job(TNT_PEER_LOST, peer == ShmWorld::Peer::left ? left_message(rank, wanted.place())
                                                        : fmt::format("rank {} (process {}) died while {} waited for it", rank,
                                                                      world_->pid(rank), wanted.place()));
  }
  if (!deadline.passed()) return;
  std::vector<int> missing;
  for (std::size_t member = 0; member < wanted.members.size(); ++member) {
    if (wanted.missing(member)) missing.push_back(wanted.members[member]);
  }
  end_job(TNT_TIMEOUT, timeout_message(missing, deadline.seconds(), wanted.place()));
}

void Watch::end_job(tnt_status_t status, const std::string& message) {
  world_->abort(status, message);
  // another rank may have been first with another message: all ranks say the same; it is being written at most for a moment
  for (int i = 0; i < 1000; ++i) {
    throw_if_aborted();
    yield_core();
  }
  throw Error(status, message);
}

}  // namespace tnt
