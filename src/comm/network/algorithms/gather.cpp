#include "comm/network/algorithms/gather.hpp"

#include <algorithm>
#include <cstring>

namespace tnt {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1024} * 1024;
constexpr std::size_t window = 4;  // pieces that a rank expects, and that it has sent and still waits for

}  // namespace

std::size_t BruckAllGather::offset(std::size_t distance) const {
  const std::size_t member = group_.self + distance;
  const std::size_t behind = blocks_.total() - blocks_.begin(group_.self);
  return member < group_.size() ? blocks_.begin(member) - blocks_.begin(group_.self)
                                : behind + blocks_.begin(member - group_.size());
}

void BruckAllGather::run(const std::function<void()>& finish_handshake) {
  const std::size_t members = group_.size();
  const std::size_t own = blocks_.size(group_.self);
  const StagingBuffer data = staging_.acquire(blocks_.total());
  if (own > 0) std::memcpy(data.get(), in_, own);
  finish_handshake();
  for (std::size_t distance = 1; distance < members; distance *= 2) {
    const std::size_t count = std::min(distance, members - distance);
    const BufferSlice outgoing{data, 0, offset(count)};
    const std::size_t end = distance + count < members ? offset(distance + count) : blocks_.total();
    const BufferSlice incoming{data, offset(distance), end - offset(distance)};
    RequestBatch batch(group_);
    if (incoming.bytes > 0) batch.receive(incoming, (group_.self + distance) % members, gather_tag);
    if (outgoing.bytes > 0) batch.send(outgoing, (group_.self + members - distance) % members, gather_tag);
    handshake_.wait(batch);
  }
  auto* out = static_cast<std::byte*>(out_);
  const std::size_t before = blocks_.begin(group_.self);
  const std::size_t from_own_on = blocks_.total() - before;
  if (from_own_on > 0) std::memcpy(out + before, data.get(), from_own_on);
  if (before > 0) std::memcpy(out, data.get() + from_own_on, before);
}

RingAllGather::RingAllGather(const Messaging& by, const void* in, void* out, const Blocks& blocks)
    : group_(by.group),
      handshake_(by.handshake),
      staging_(by.staging),
      in_(static_cast<const std::byte*>(in)),
      out_(static_cast<std::byte*>(out)),
      blocks_(blocks),
      takes_callers_(group_.world->network().takes_callers_memory()) {}

// A rank's sends of its last round but one are what its neighbour's last round receives.
std::optional<RingAllGather::Part> RingAllGather::next() {
  for (; round_ < group_.size(); ++round_, first_ = 0) {
    const std::size_t block = (group_.self + group_.size() - round_) % group_.size();
    const std::size_t bytes = blocks_.part(block, first_, piece_bytes);
    if (bytes == 0) continue;
    const Part part{round_, blocks_.begin(block) + first_, bytes};
    first_ += bytes;
    return part;
  }
  return std::nullopt;
}

void RingAllGather::post(const Part& part) {
  Piece& piece = pieces_.emplace_back(part, group_);
  piece.data = {takes_callers_ ? callers_memory(out_ + part.begin) : staging_.acquire(part.bytes), 0, part.bytes};
  if (part.round > 0) {
    piece.arrival.receive(piece.data, (group_.self + group_.size() - 1) % group_.size(), gather_tag);
  } else {
    const std::byte* own = in_ + (part.begin - blocks_.begin(group_.self));
    if (own != piece.data.data()) std::memcpy(piece.data.data(), own, part.bytes);
  }
}

void RingAllGather::pass_on(Piece& piece) {
  handshake_.wait(piece.arrival);
  if (piece.part.round + 1 < group_.size()) {
    sends_.emplace_back(group_).send(piece.data, (group_.self + 1) % group_.size(), gather_tag);
  }
  if (!takes_callers_) std::memcpy(out_ + piece.part.begin, piece.data.data(), piece.part.bytes);
}

void RingAllGather::wait_for_sends(std::size_t left) {
  for (; sends_.size() > left; sends_.pop_front()) handshake_.wait(sends_.front());
}

void RingAllGather::run(const std::function<void()>& finish_handshake) {
  finish_handshake();
  for (auto part = next(); part || !pieces_.empty();) {
    for (; part && pieces_.size() < window; part = next()) post(*part);
    pass_on(pieces_.front());
    pieces_.pop_front();
    wait_for_sends(window);
  }
  wait_for_sends(0);
}

}  // namespace tnt
