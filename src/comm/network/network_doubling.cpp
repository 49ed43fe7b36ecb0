#include "comm/network/network_doubling.hpp"

#include <utility>

namespace tnt {

void DoublingAllReduce::run(const std::function<void()>& first_begun) {
  data_ = staging_.acquire(bytes_);
  arrived_ = staging_.acquire(bytes_);
  sums_.pack(0, fused_.count(), data_.get(), staging_);
  phases_.end("pack");
  if (places_.folded) return run_folded(first_begun);
  if (places_.extra) {
    RequestBatch batch(group_);
    batch.receive({arrived_, 0, bytes_}, *places_.extra, scatter_tag);
    first_begun();
    wait(batch);
    sums_.combine(data_.get(), data_.get(), arrived_.get(), fused_.count());
    phases_.end("reduce");
  }
  for (std::size_t level = 0; level < places_.levels; ++level) {
    RequestBatch batch(group_);
    batch.receive({arrived_, 0, bytes_}, places_.partner(level), scatter_tag);
    batch.send({data_, 0, bytes_}, places_.partner(level), scatter_tag);
    if (level == 0 && !places_.extra) first_begun();
    wait(batch);
    const bool upper = places_.is_upper(level);
    sums_.combine(data_.get(), upper ? arrived_.get() : data_.get(), upper ? data_.get() : arrived_.get(), fused_.count());
    phases_.end("reduce");
  }
  const StagingBuffer result = sums_.are_results() ? data_ : staging_.acquire(fused_.count() * sums_.result_size());
  sums_.finish(result.get(), data_.get(), fused_.count());
  RequestBatch last(group_);
  if (places_.extra) last.send({result, 0, fused_.count() * sums_.result_size()}, *places_.extra, gather_tag);
  unpack(result.get());
  handshake_.wait(last);
}

void DoublingAllReduce::run_folded(const std::function<void()>& first_begun) {
  RequestBatch batch(group_);
  batch.receive({arrived_, 0, fused_.count() * sums_.result_size()}, group_.self - 1, gather_tag);
  batch.send({data_, 0, bytes_}, group_.self - 1, scatter_tag);
  first_begun();
  wait(batch);
  unpack(arrived_.get());
}

void DoublingAllReduce::unpack(const std::byte* result) {
  fused_.unpack(0, fused_.count(), result);
  phases_.end("unpack");
}

}  // namespace tnt
