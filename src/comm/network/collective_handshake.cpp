#include "comm/network/collective_handshake.hpp"

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
  batch_.reset();
  outgoing_.reset();
  incoming_.reset();
}

void CollectiveHandshake::begin(const Call& call, const CallContext& context) {
  start_call(call, context);
  if (group_.size() == 1) return;
  outgoing_ = staging_.acquire(header_bytes);
  incoming_ = staging_.acquire(capacity);  // if the next member gathers, its message is longer
  stamp(outgoing_.get());
  batch_.emplace(group_);
  batch_->receive({incoming_, 0, capacity}, after(1), handshake_tag);
  batch_->send({outgoing_, 0, header_bytes}, before(1), handshake_tag);
}

void CollectiveHandshake::stamp(std::byte* message) const {
  const Header header{calls_, call_};
  std::memcpy(message, &header, sizeof(header));
}

void CollectiveHandshake::finish() {
  if (!batch_) return;
  wait(*batch_);
  batch_.reset();
  compare(incoming_.get(), after(1));
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
  for (std::size_t distance = 1; distance < members; distance *= 2) {
    const std::size_t part = std::min(distance, members - distance) * bytes;
    RequestBatch batch(group_);
    batch.receive({incoming_, 0, capacity}, after(distance), handshake_tag);
    batch.send({outgoing_, 0, header_bytes + part}, before(distance), handshake_tag);
    wait(batch);
    compare(incoming_.get(), after(distance));
    if (part > 0) std::memcpy(outgoing_.get() + header_bytes + distance * bytes, incoming_.get() + header_bytes, part);
  }
}

// Each member's room is for the head of its message, and then for the rest.
void CollectiveHandshake::gather_directly() {
  const std::size_t bytes = header_bytes + bytes_;
  incoming_ = staging_.acquire(group_.size() * room);
  RequestBatch heads(group_);
  RequestBatch rests(group_);
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    heads.receive({incoming_, distance * room, capacity}, after(distance), handshake_tag);
    if (head_bytes(bytes, after(distance)) < bytes) {
      rests.receive({incoming_, distance * room + capacity, capacity}, after(distance), handshake_tag);
    }
    const std::size_t head = head_bytes(bytes, before(distance));
    heads.send({outgoing_, 0, head}, before(distance), handshake_tag);
    if (head < bytes) rests.send({outgoing_, head, bytes - head}, before(distance), handshake_tag);
  }
  wait(heads);
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    compare(incoming_.get() + distance * room, after(distance));
  }
  wait(rests);
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t head = head_bytes(bytes, after(distance));
    std::byte* message = incoming_.get() + distance * room;
    if (head < bytes) std::memcpy(message + head, message + capacity, bytes - head);
  }
}

const std::byte* CollectiveHandshake::gathered(std::size_t member) const {
  const std::size_t place = (member + group_.size() - group_.self) % group_.size();
  if (place > 0 && group_.size() <= max_direct) return incoming_.get() + place * room + header_bytes;
  return outgoing_.get() + header_bytes + place * bytes_;
}

void CollectiveHandshake::wait(RequestBatch& batch) const {
  batch.wait(context_, WaitingCall{group_.context, calls_}, [this] { return waiter(); });
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
