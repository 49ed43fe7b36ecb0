#include "comm/network/algorithms/doubling.hpp"

#include <cstring>

namespace tnt {

void DoublingAllReduce::run(const std::function<void()>& arrived) {
  data_ = staging_.acquire(CollectiveHandshake::header_bytes + bytes_);
  arrived_ = staging_.acquire(CollectiveHandshake::max_stamped);
  handshake_.stamp(data_.get());
  sums_.pack(0, fused_.count(), sums(), staging_);
  phases_.end(Phase::pack);
  add_up();
  send_results();
  arrived();
}

void DoublingAllReduce::add_up() {
  if (places_.folded) {
    send(data_, bytes_, group_.self - 1);
    return complete();
  }
  if (places_.extra) {
    receive(bytes_, *places_.extra);
    complete();
    add(places_.levels);
  }
  for (std::size_t level = 0; level < places_.levels; ++level) {
    const bool upper = places_.is_upper(level);
    if (!root_ || !upper) receive(bytes_, places_.partner(level));
    if (!root_ || upper) send(data_, bytes_, places_.partner(level));
    complete();
    if (root_ && upper) return;
    add(level);
  }
}

// Beyond the last level: what the extra member sends.
void DoublingAllReduce::add(std::size_t level) {
  const std::byte* other = arrived_.get() + CollectiveHandshake::header_bytes;
  const bool upper = level < places_.levels && places_.is_upper(level);
  sums_.combine(sums(), upper ? other : sums(), upper ? sums() : other, fused_.count());
  phases_.end(Phase::reduce);
}

void DoublingAllReduce::send_results() {
  const bool wanted = !root_ || *root_ == group_.self;
  const std::byte* result = arrived_.get() + CollectiveHandshake::header_bytes;
  if (has_sum()) {
    const StagingBuffer message =
        sums_.are_results() ? data_ : staging_.acquire(CollectiveHandshake::header_bytes + result_bytes_);
    if (message != data_) handshake_.stamp(message.get());
    sums_.finish(message.get() + CollectiveHandshake::header_bytes, sums(), fused_.count());
    if (!root_ && places_.extra) send(message, result_bytes_, *places_.extra);
    if (root_ && !wanted) send(message, result_bytes_, *root_);
    if (wanted) fused_.unpack(0, fused_.count(), message.get() + CollectiveHandshake::header_bytes);
    phases_.end(Phase::unpack);
    return complete();
  }
  if (!wanted) return;
  receive(result_bytes_, root_ ? 0 : group_.self - 1);
  complete();
  fused_.unpack(0, fused_.count(), result);
  phases_.end(Phase::unpack);
}

// With room for the message of any other call, which is then found by its header.
void DoublingAllReduce::receive(std::size_t bytes, std::size_t member) {
  const std::size_t all = CollectiveHandshake::header_bytes + bytes;
  sender_ = member;
  arriving_head_ = handshake_.head_bytes(all, member);
  arriving_rest_ = all - arriving_head_;
  heads_.receive({arrived_, 0, CollectiveHandshake::max_stamped}, member, stamped_tag);
  if (arriving_rest_ == 0) return;
  if (!arrived_rest_) arrived_rest_ = staging_.acquire(CollectiveHandshake::max_stamped);
  rests_.receive({arrived_rest_, 0, CollectiveHandshake::max_stamped}, member, stamped_tag);
}

void DoublingAllReduce::send(const StagingBuffer& message, std::size_t bytes, std::size_t member) {
  const std::size_t all = CollectiveHandshake::header_bytes + bytes;
  const std::size_t head = handshake_.head_bytes(all, member);
  heads_.send({message, 0, head}, member, stamped_tag);
  if (head < all) rests_.send({message, head, all - head}, member, stamped_tag);
}

// A rank in another call may send no rest, so the call is checked before it is waited for.
void DoublingAllReduce::complete() {
  wait(heads_);
  if (sender_) handshake_.check(arrived_.get(), *sender_);
  wait(rests_);
  if (sender_ && arriving_rest_ > 0) std::memcpy(arrived_.get() + arriving_head_, arrived_rest_.get(), arriving_rest_);
  sender_.reset();
}

}  // namespace tnt
