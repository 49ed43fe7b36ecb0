#include "comm/network/messages/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "comm/error_messages.hpp"

namespace tnt {
namespace {

constexpr std::int64_t check_every_ns = 2'000'000;
constexpr std::int64_t max_nap_ns = 500'000;  // of a rank that has waited long; a network makes progress only when it is polled
constexpr std::int64_t min_nap_ns = 50'000;   // of a rank whose polling takes the core from a computation

// Backs off: spins first, then yields, then sleeps, longer the longer it has waited. Beside nothing that computes it yields
// for 10 ms: where ranks share cores, a collective takes some milliseconds, and each nap of a rank holds up all others. It
// yields once for each look: a network whose test has yielded must be looked at first.
void rest(const Group& group, WaitHint wait_hint, std::int64_t waited) {
  const BackoffPolicy& backoff = group.backoff;
  const bool computing = wait_hint == WaitHint::computing;
  if (waited < backoff.spin_ns) {
    cpu_pause();
  } else if (waited < (computing ? 1 : 500) * backoff.yield_ns) {
    if (!group.test_yields) yield_core();
  } else {
    const std::int64_t nap = computing ? std::max(waited / 8, min_nap_ns) : waited / 64;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(nap, max_nap_ns)));
  }
}

// An error of the network may follow from different calls: a message that is longer than its receive. The ranks that find the
// difference say more, so they get a moment to tell all.
void await_abort(NetworkWorld& world) {
  constexpr double moment_seconds = 0.2;
  for (const Deadline moment(moment_seconds); !moment.passed() && !world.async_error();) {
    world.network().sleep(std::chrono::milliseconds(1));
  }
}

std::shared_ptr<void> owner_of(const StagingBuffer& buffer) {
  return is_callers(buffer) ? nullptr : std::shared_ptr<void>(buffer, buffer.get());
}

}  // namespace

void abort_and_throw(NetworkWorld& world, tnt_status_t status, const std::string& message) {
  world.abort(status, message);
  world.throw_if_aborted();
  throw Error(status, message);
}

// The two kinds of messages whose receives have room for exactly what is sent, so both ranks cut them alike.
void RequestBatch::start(const BufferSlice& message, std::size_t member, TagKind kind, bool incoming) {
  constexpr std::size_t most_parts = 3;  // more take longer than one message
  const std::size_t unasked = group_->world->unasked_bytes(group_->members[member]);
  const bool is_exact = kind == scatter_tag || kind == gather_tag;
  if (!is_exact || message.bytes <= unasked || message.bytes > most_parts * unasked) {
    return start_whole(message, member, kind, incoming);
  }
  for (std::size_t at = 0; at < message.bytes; at += unasked) {
    start_whole({message.buffer, message.offset + at, std::min(unasked, message.bytes - at)}, member, kind, incoming);
  }
}

void RequestBatch::start_whole(const BufferSlice& part, std::size_t member, TagKind kind, bool incoming) {
  NetworkWorld& world = *group_->world;
  if (world.closed()) world.throw_if_aborted();
  const int peer = group_->members[member], tag = world.tag(group_->context, kind);
  auto owner = owner_of(part.buffer);
  auto request = incoming ? world.network().irecv(part.data(), part.bytes, peer, tag, std::move(owner))
                          : world.network().isend(part.data(), part.bytes, peer, tag, std::move(owner));
  items_.push_back({std::move(request), member, incoming, is_callers(part.buffer)});
}

void RequestBatch::add(std::unique_ptr<Request> request, bool in_callers_memory) {
  items_.push_back({std::move(request), all_members, true, in_callers_memory});
}

// All are waited for, and a test of one lets the network work on all: the others need no test while this one is not complete.
bool RequestBatch::poll() {
  const std::size_t before = items_.size();
  while (!items_.empty() && items_.back().request->test()) items_.pop_back();
  return items_.size() < before;
}

bool RequestBatch::poll_all() {
  const std::size_t before = items_.size();
  std::erase_if(items_, [](const Item& item) { return item.request->test(); });
  return items_.size() < before;
}

void RequestBatch::give_up() noexcept {
  const bool callers = std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.callers; });
  if (callers) group_->world->close(fmt::format("rank {} could not complete a collective", group_->members[group_->self]));
  items_.clear();
}

void RequestBatch::wait(const CallContext& context, std::optional<WaitingCall> call, const std::function<std::string()>& waiter,
                        const std::function<void()>& meanwhile) {
  try {
    (void)poll();
    if (items_.empty()) return;
    const Deadline deadline(context.timeout);
    std::int64_t quiet_since = now_ns();
    std::int64_t last_check_ns = quiet_since;
    std::optional<NetworkWorld::Waiting> waiting;  // made at the first check: most waits are shorter
    while (!items_.empty()) {
      const std::int64_t now = now_ns();
      if (now - last_check_ns > check_every_ns) {
        if (!waiting) waiting.emplace(*group_->world, call.value_or(WaitingCall{}));
        (call ? group_->calls : group_->messages).still_waits(now);
        meanwhile();
        check_peers(context.timeout, now >= deadline.end_ns(), call, waiter);
        last_check_ns = now;
        if (items_.empty()) break;
      }
      if (poll()) {
        quiet_since = now;
      } else if (!items_.back().request->wait()) {
        rest(*group_, context.wait_hint, now - quiet_since);
      }
    }
  } catch (const Error& error) {
    if (error.status() != TNT_SYSTEM) throw;
    await_abort(*group_->world);
    abort_and_throw(*group_->world, TNT_SYSTEM, fmt::format("{}: {}", waiter(), error.what()));
  }
}

void RequestBatch::check_peers(double timeout, bool passed, std::optional<WaitingCall> call,
                               const std::function<std::string()>& waiter) {
  NetworkWorld& world = *group_->world;
  world.throw_if_aborted();
  if (group_->cancelled) fail(TNT_ABORTED, "{} was cancelled: its communicator is being destroyed", waiter());
  if (poll_all()) return;
  for (const int rank : needed()) {
    const bool lost = world.lost(rank);
    if (!lost && !world.left(rank)) continue;
    if (poll_all()) return;  // its message came before it left: poll again
    abort_and_throw(world, TNT_PEER_LOST, lost ? lost_message(rank, waiter()) : left_message(rank, waiter()));
  }
  if (!passed) return;
  std::vector<int> named = missing();
  if (call) {  // those may wait for others themselves
    const auto absent = world.call_roll(*call, group_->members, group_->involved);
    if (!absent.empty()) named = absent;
  }
  abort_and_throw(world, TNT_TIMEOUT, timeout_message(named, timeout, waiter()));
}

// The senders of messages that have not arrived; if all have, the receivers that have not taken this rank's messages.
std::vector<int> RequestBatch::missing() const {
  std::vector<int> ranks;
  const bool incoming = std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.incoming; });
  for (const Item& item : items_) {
    if (item.member == all_members) {
      ranks = group_->members;
      std::erase(ranks, group_->members[group_->self]);
      break;
    }
    if (item.incoming == incoming) ranks.push_back(group_->members[item.member]);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int> RequestBatch::needed() const {
  const bool collective =
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.member == all_members; });
  return collective ? std::vector<int>() : missing();
}

}  // namespace tnt
