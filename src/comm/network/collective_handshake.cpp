#include "comm/network/collective_handshake.hpp"

#include <cstring>

#include "comm/error_messages.hpp"

namespace tnt {

void CollectiveHandshake::begin(const Call& call, const CallContext& context, std::size_t payload, const Fill& fill) {
  group_.world->throw_if_aborted();
  call_ = call;
  context_ = context;
  const Header header{++calls_, call};
  outgoing_.reset();
  incoming_.reset();
  outgoing_ = staging_.acquire(group_.size() * slot_bytes);
  incoming_ = staging_.acquire(group_.size() * slot_bytes);
  batch_.emplace(group_);
  for (std::size_t member = 0; member < group_.size(); ++member) {
    if (member == group_.self) continue;
    batch_->receive({incoming_, member * slot_bytes, sizeof(Header) + max_payload}, member, handshake_tag);
  }
  for (std::size_t i = 1; i <= group_.size(); ++i) {  // each rank begins with another member, to spread the load
    const std::size_t member = (group_.self + i) % group_.size();
    std::byte* to = slot(member == group_.self ? incoming_ : outgoing_, member);
    std::memcpy(to, &header, sizeof(header));
    if (payload > 0) fill(member, to + sizeof(Header));
    if (member != group_.self) batch_->send({outgoing_, member * slot_bytes, sizeof(Header) + payload}, member, handshake_tag);
  }
}

void CollectiveHandshake::finish() {
  wait(*batch_);
  batch_.reset();
  compare();
}

const std::byte* CollectiveHandshake::payload(std::size_t member) const { return slot(incoming_, member) + sizeof(Header); }

void CollectiveHandshake::wait(RequestBatch& batch) const {
  batch.wait(context_, [this] { return waiter(); });
}

void CollectiveHandshake::compare() const {
  const auto header = [&](std::size_t member) {
    Header result{};
    std::memcpy(&result, slot(incoming_, member), sizeof(result));
    return result;
  };
  const Header first = header(0);
  for (std::size_t member = 1; member < group_.size(); ++member) {
    const Header other = header(member);
    if (other.call == first.call) continue;
    abort_and_throw(*group_.world, TNT_MISMATCH,
                    mismatch_message(group_.members[member], other.call, group_.members[0], first.call, calls_));
  }
}

std::string CollectiveHandshake::waiter() const {
  const std::string detail = context_.detail.empty() ? "" : fmt::format(", {}", context_.detail);
  return fmt::format("rank {} in {} (call {}{})", group_.members[group_.self], describe(call_), calls_, detail);
}

}  // namespace tnt
