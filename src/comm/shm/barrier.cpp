#include "comm/shm/barrier.hpp"

#include <sched.h>

#include <algorithm>

namespace tnt {
namespace {

const char* kind_name(Call::Kind kind) {
  switch (kind) {
    case Call::all_reduce: return "all_reduce";
    case Call::reduce_scatter: return "reduce_scatter";
    case Call::all_gather: return "all_gather";
    case Call::broadcast: return "broadcast";
    case Call::barrier: return "barrier";
  }
  return "unknown call";
}

// With fewer cores than ranks, spinning only keeps away the rank that one waits for.
Patience patience_for(std::size_t ranks) {
  cpu_set_t cores;
  const bool known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
  const bool enough = !known || static_cast<std::size_t>(CPU_COUNT(&cores)) >= ranks;
  return enough ? Patience{} : Patience{0, 5'000};
}

}  // namespace

std::string describe(const Call& call) {
  const char* name = kind_name(call.kind);
  switch (call.kind) {
    case Call::barrier: return name;
    case Call::broadcast: return fmt::format("{} of {} {} from rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::all_gather: return fmt::format("{} of {} {}", name, call.count, dtype_name(call.dtype));
    default: return fmt::format("{} {} of {} {}", name, op_name(call.op), call.count, dtype_name(call.dtype));
  }
}

std::size_t ShmBarrier::bytes(std::size_t members) noexcept { return sizeof(Control) + members * sizeof(Member); }

ShmBarrier::ShmBarrier(std::shared_ptr<ShmWorld> world, std::byte* memory, std::vector<int> members, std::size_t self)
    : world_(std::move(world)),
      control_(reinterpret_cast<Control*>(memory)),
      members_memory_(reinterpret_cast<Member*>(memory + sizeof(Control))),
      members_(std::move(members)),
      self_(self),
      patience_(patience_for(members_.size())) {}

bool ShmBarrier::leave() noexcept { return control_->left.fetch_add(1) + 1 == members_.size(); }

void ShmBarrier::begin(const Call& call, const CallContext& context) {
  if (auto error = world_->aborted()) throw Error(*error);
  call_ = call;
  context_ = context;
  compared_ = false;
  members_memory_[self_].calls[++calls_ % 2] = call;
}

void ShmBarrier::meet() {
  ++round_;
  members_memory_[self_].arrived.store(round_);
  ring(control_->bell);
  const Deadline deadline(context_.timeout);
  const auto all_here = [&] {
    for (std::size_t member = 0; member < members_.size(); ++member) {
      if (missing(member)) return false;
    }
    return true;
  };
  wait_until(control_->bell, patience_, all_here, [&] { check(deadline); });
  if (!compared_) compare_calls();
}

void ShmBarrier::compare_calls() {
  compared_ = true;
  const Call& first = members_memory_[0].calls[calls_ % 2];
  for (std::size_t member = 1; member < members_.size(); ++member) {
    const Call& other = members_memory_[member].calls[calls_ % 2];
    if (other == first) continue;
    end_job(TNT_MISMATCH, fmt::format("rank {} called {} while rank {} called {} (call {} of their communicator): all ranks "
                                      "must make the same calls in the same order",
                                      members_[member], describe(other), members_[0], describe(first), calls_));
  }
}

void ShmBarrier::check(const Deadline& deadline) {
  if (auto error = world_->aborted()) throw Error(*error);
  if (cancelled_) fail(TNT_ABORTED, "{}: given up, as its communicator is being destroyed", place());
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!missing(member)) continue;
    const int rank = members_[member];
    const ShmWorld::Peer peer = world_->peer(rank);
    if (peer == ShmWorld::Peer::alive || !missing(member)) continue;
    const std::string how = peer == ShmWorld::Peer::left ? "left the job (its script has ended)"
                                                         : fmt::format("(process {}) died", world_->pid(rank));
    end_job(TNT_PEER_LOST, fmt::format("rank {} {} while {} waited for it", rank, how, place()));
  }
  if (!deadline.passed()) return;
  std::string who;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (missing(member)) who += fmt::format("{}rank {}", who.empty() ? "" : ", ", members_[member]);
  }
  end_job(TNT_TIMEOUT, fmt::format("{} did not come within {} s, for which {} waited (it may be stopped, or busy with "
                                   "something else; TNT_TIMEOUT sets the deadline)",
                                   who, deadline.seconds(), place()));
}

std::string ShmBarrier::place() const {
  const std::string detail = context_.detail.empty() ? "" : fmt::format(", {}", context_.detail);
  return fmt::format("rank {} in {} (call {}{})", world_->rank(), describe(call_), calls_, detail);
}

void ShmBarrier::end_job(tnt_status_t status, const std::string& sentence) {
  world_->abort(status, sentence);
  // another rank may have been first with another sentence: all ranks say the same; it is being written at most for a moment
  for (int i = 0; i < 1000; ++i) {
    if (auto error = world_->aborted()) throw Error(*error);
    yield_core();
  }
  throw Error(status, sentence);
}

}  // namespace tnt
