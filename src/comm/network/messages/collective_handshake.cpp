#include "comm/network/messages/collective_handshake.hpp"

#include <algorithm>
#include <cstring>

#include "comm/error_messages.hpp"

namespace tnt {

void CollectiveHandshake::start_call(const Call& call, const CallContext& context) {
  group_.world->throw_if_aborted();
  call_ = call;
  context_ = context;
  ++calls_;
  group_.calls.begin(call, calls_, context.detail, now_ns());
  listens_ = false;
  telling_.reset();
  outgoing_.reset();
  incoming_.reset();
}

void CollectiveHandshake::expect_next() {
  if (next_) return;
  from_next_.reset();
  from_next_ = staging_.acquire(capacity);  // if the next member gathers, its message is longer
  next_.emplace(group_);
  next_->receive({from_next_, 0, capacity}, after(1), handshake_tag);
}

void CollectiveHandshake::begin(const Call& call, const CallContext& context) {
  start_call(call, context);
  if (group_.size() == 1) return;
  outgoing_ = staging_.acquire(header_bytes);
  stamp(outgoing_.get());
  expect_next();
  telling_.emplace(group_);
  telling_->send({outgoing_, 0, header_bytes}, before(1), handshake_tag);
}

void CollectiveHandshake::listen(const Call& call, const CallContext& context) {
  start_call(call, context);
  if (group_.size() == 1) return;
  expect_next();
  listens_ = true;
}

void CollectiveHandshake::stamp(std::byte* message) const {
  const Header header{calls_, call_};
  std::memcpy(message, &header, sizeof(header));
}

void CollectiveHandshake::finish() {
  if (!telling_) return;
  wait_for_next();
  wait(*telling_);
  telling_.reset();
  compare(from_next_.get(), after(1));
}

// A neighbour that has ended this call may have told its next one.
void CollectiveHandshake::look_at_next() {
  if (!next_->completed()) return;
  Header other{};
  std::memcpy(&other, from_next_.get(), sizeof(other));
  if (other.number == calls_) compare(from_next_.get(), after(1));
}

void CollectiveHandshake::gather(const Call& call, const CallContext& context, std::size_t bytes,
                                 const std::function<void(std::byte* to)>& fill) {
  start_call(call, context);
  const std::size_t members = group_.size();
  bytes_ = bytes;
  const bool direct = members <= max_direct;
  outgoing_ = staging_.acquire(header_bytes + (direct ? 1 : members) * bytes);
  stamp(outgoing_.get());
  if (bytes > 0) fill(outgoing_.get() + header_bytes);
  if (direct) return gather_directly();
  incoming_ = staging_.acquire(capacity);
  expect_next();
  for (std::size_t distance = 1; distance < members; distance *= 2) {
    const std::size_t part = std::min(distance, members - distance) * bytes;
    RequestBatch batch(group_);
    if (distance > 1) batch.receive({incoming_, 0, capacity}, after(distance), handshake_tag);
    batch.send({outgoing_, 0, header_bytes + part}, before(distance), handshake_tag);
    if (distance == 1) wait_for_next();
    wait(batch);
    const std::byte* arrived = (distance == 1 ? from_next_ : incoming_).get();
    compare(arrived, after(distance));
    if (part > 0) std::memcpy(outgoing_.get() + header_bytes + distance * bytes, arrived + header_bytes, part);
  }
}

void CollectiveHandshake::wait_for_next() {
  wait(*next_);
  next_.reset();
}

// Each member's room is for the head of its message, and then for the rest.
void CollectiveHandshake::gather_directly() {
  const std::size_t bytes = header_bytes + bytes_;
  incoming_ = staging_.acquire(group_.size() * room);
  RequestBatch heads(group_);
  RequestBatch rests(group_);
  if (group_.size() > 1) expect_next();
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    if (distance > 1) heads.receive({incoming_, distance * room, capacity}, after(distance), handshake_tag);
    if (head_bytes(bytes, after(distance)) < bytes) {
      rests.receive({incoming_, distance * room + capacity, capacity}, after(distance), handshake_tag);
    }
    const std::size_t head = head_bytes(bytes, before(distance));
    heads.send({outgoing_, 0, head}, before(distance), handshake_tag);
    if (head < bytes) rests.send({outgoing_, head, bytes - head}, before(distance), handshake_tag);
  }
  if (next_) wait_for_next();
  wait(heads);
  for (std::size_t distance = 1; distance < group_.size(); ++distance) compare(arrival_from(distance), after(distance));
  wait(rests);
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t head = head_bytes(bytes, after(distance));
    const std::byte* rest = incoming_.get() + distance * room + capacity;
    if (head < bytes) std::memcpy(arrival_from(distance) + head, rest, bytes - head);
  }
}

const std::byte* CollectiveHandshake::gathered(std::size_t member) const {
  const std::size_t place = (member + group_.size() - group_.self) % group_.size();
  if (place > 0 && group_.size() <= max_direct) return arrival_from(place) + header_bytes;
  return outgoing_.get() + header_bytes + place * bytes_;
}

void CollectiveHandshake::wait(RequestBatch& batch) {
  batch.wait(
      context_, WaitingCall{group_.context, calls_}, [this] { return waiter(); },
      [this] {
        if (listens_) look_at_next();
      });
}

// The rank with the higher number is named first, whoever finds the difference.
void CollectiveHandshake::compare(const std::byte* arrived, std::size_t member) const {
  Header other{};
  std::memcpy(&other, arrived, sizeof(other));
  if (other.call == call_) return;
  const int rank = group_.members[group_.self];
  const int other_rank = group_.members[member];
  abort_and_throw(*group_.world, TNT_MISMATCH,
                  rank > other_rank ? mismatch_message(rank, call_, other_rank, other.call, calls_)
                                    : mismatch_message(other_rank, other.call, rank, call_, calls_));
}

std::string CollectiveHandshake::waiter() const {
  const std::string detail = context_.detail.empty() ? "" : fmt::format(", {}", context_.detail);
  return fmt::format("rank {} in {} (call {}{})", group_.members[group_.self], describe(call_), calls_, detail);
}

}  // namespace tnt
