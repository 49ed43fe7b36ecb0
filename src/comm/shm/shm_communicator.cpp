#include "comm/shm/shm_communicator.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/error_messages.hpp"
#include "comm/shm/all_reduce.hpp"
#include "comm/shm/error_record.hpp"
#include "comm/shm/shrink.hpp"
#include "common/memory.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

constexpr std::size_t slot_bytes = Slots::slot_bytes;

// The barrier, and the record of errors.
std::size_t error_offset(std::size_t members) { return rounded_up(ShmBarrier::bytes(members), alignof(ErrorRecord)); }

std::size_t control_bytes(std::size_t members) { return whole_pages(error_offset(members) + sizeof(ErrorRecord)); }

ErrorRecord* error_record(const ShmRegion& region, std::size_t members) {
  return reinterpret_cast<ErrorRecord*>(region.data() + error_offset(members));
}

// The memory of a communicator: control, slots, LL buffer, a mailbox for messages and one for group creation, that of shrink,
// and departures.
std::size_t ll_offset(std::size_t members) { return control_bytes(members) + Slots::bytes(members); }

std::size_t mailbox_offset(std::size_t members) { return whole_pages(ll_offset(members) + LLBuffer::bytes(members)); }

std::size_t group_mailbox_offset(std::size_t members) { return mailbox_offset(members) + ShmMailbox::bytes(members); }

std::size_t shrink_offset(std::size_t members) { return group_mailbox_offset(members) + ShmMailbox::bytes(members); }

std::size_t region_bytes(std::size_t members) {
  return shrink_offset(members) + ShmShrink::bytes(members) + ShmRegion::departure_bytes(members);
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> result(static_cast<std::size_t>(ranks));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

// from: may be null, or end before begin, if there are no bytes.
void copy_part(std::byte* to, const void* from, std::size_t begin, std::size_t bytes, Store store = Store::cached) {
  if (bytes > 0) copy(to, at(from, begin), bytes, store);
}

}  // namespace

// How one call that moves blocks writes its result: one that is larger than the caches goes past them where that was faster.
// largest: bytes of a block, the same on all ranks.
class ShmCommunicator::MoveStore {
 public:
  MoveStore(ShmCommunicator& self, Call::Kind kind, std::size_t largest)
      : tuner_(self.store_tuners_.at(kind)), bytes_(largest * self.members()) {
    if (bytes_ < self.tuning_.streaming_bytes) return;
    next_ = tuner_.next(bytes_);
    if (next_.timed) begin_ = now_ns();
  }

  [[nodiscard]] Store out() const noexcept { return next_.store; }
  void end() {
    if (next_.timed) tuner_.record(bytes_, now_ns() - begin_);
  }

 private:
  StoreTuner& tuner_;
  std::size_t bytes_;
  StoreTuner::Next next_{Store::cached, false};
  std::int64_t begin_ = 0;
};

std::size_t ShmCommunicator::world_bytes(int ranks) { return region_bytes(static_cast<std::size_t>(ranks)); }

ShmCommunicator::ShmCommunicator(const std::shared_ptr<ShmWorld>& world)
    : ShmCommunicator(world, ShmWorld::first_offset(), all_ranks(world->ranks()), static_cast<std::size_t>(world->rank())) {}

ShmCommunicator::ShmCommunicator(const std::shared_ptr<ShmWorld>& world, std::vector<int> members)
    : ShmCommunicator(world, ShmWorld::first_offset(), members,
                      static_cast<std::size_t>(std::find(members.begin(), members.end(), world->rank()) - members.begin())) {}

ShmCommunicator::ShmCommunicator(std::shared_ptr<ShmWorld> world, std::uint64_t region, std::vector<int> members,
                                 std::size_t self)
    : world_(std::move(world)),
      region_(std::make_shared<ShmRegion>(world_, region, region_bytes(members.size()), members, self)),
      self_(self),
      tuning_(world_->tuning(members.size())),
      monitor_(world_, error_record(*region_, members.size())),
      barrier_(monitor_, region_->data(), members, self, open_lane(world_->recorder(), region, members, self, "shm")),
      slots_(region_->data() + control_bytes(barrier_.members().size())),
      direct_(barrier_, slots_, *world_, self),
      ll_(region_->data() + ll_offset(barrier_.members().size()), self),
      mailbox_(monitor_, region_->data() + mailbox_offset(barrier_.members().size()), barrier_.members(), self,
               open_lane(world_->recorder(), region, barrier_.members(), self, "shm", true)),
      group_mailbox_(monitor_, region_->data() + group_mailbox_offset(barrier_.members().size()), barrier_.members(), self),
      group_ids_(*this, group_mailbox_, barrier_.members()) {}

void ShmCommunicator::run(const Collective& call, const CallContext& context) {
  const auto peer = static_cast<std::size_t>(call.root);
  if (call.kind == Call::send) return mailbox_.send(call.in, call.count, call.dtype, peer, context);
  if (call.kind == Call::recv) return mailbox_.recv(call.out, call.count, call.dtype, peer, context);
  barrier_.begin(call, context);
  switch (call.kind) {
    case Call::all_reduce:
    case Call::reduce: reduce_tensors(call, context); break;
    case Call::reduce_scatter:
    case Call::reduce_scatter_v: reduce_blocks(call); break;
    case Call::all_gather:
    case Call::all_gather_v:
    case Call::gather: gather_blocks(call); break;
    case Call::scatter: scatter(call); break;
    case Call::broadcast: broadcast(call); break;
    case Call::all_to_all:
    case Call::all_to_all_v: exchange_blocks(call); break;
    default: barrier_.arrive_and_wait();
  }
  barrier_.end();
}

void ShmCommunicator::reduce_tensors(const Collective& call, const CallContext& context) {
  const ReducedTensors tensors(call, rank());
  Phases phases(context);
  ShmAllReduce all_reduce({.barrier = barrier_,
                           .slots = slots_,
                           .ll = ll_,
                           .store_tuner = store_tuners_[Call::all_reduce],
                           .tuning = tuning_,
                           .self = self_},
                          tensors.fused(), call.op, phases);
  call.kind == Call::reduce ? all_reduce.reduce_rooted(rank() == call.root) : all_reduce();
}

// Each rank writes a chunk of every destination's block. Each rank then reduces the chunk of its own block straight into its
// output.
void ShmCommunicator::reduce_blocks(const Collective& call) {
  const Blocks counts = blocks_of(call, members());
  const std::size_t size = dtype_size(call.dtype);
  const std::size_t block = slot_bytes / members() / cache_line_bytes * cache_line_bytes;  // bytes of one destination's chunk
  const std::size_t per_chunk = block / size;
  const std::size_t largest = counts.largest();
  std::size_t begin = 0;
  do {  // a call without elements is still a barrier
    std::vector<const void*> sources;
    for (std::size_t member = 0; member < members(); ++member) {
      const std::size_t part = counts.part(member, begin, per_chunk);
      copy_part(slots_.of(self_) + member * block, call.in, (counts.begin(member) + begin) * size, part * size);
      sources.push_back(slots_.of(member) + self_ * block);
    }
    barrier_.arrive_and_wait();
    if (const std::size_t part = counts.part(self_, begin, per_chunk); part > 0) {
      tnt::reduce(at(call.out, begin * size), sources, part, call.dtype, call.op);
    }
    slots_.advance();
    begin += per_chunk;
  } while (begin < largest);
}

template <typename Given, typename Taken>
bool ShmCommunicator::move_directly(bool may_be_read, const Given& given, const Taken& taken, std::size_t ahead) {
  std::vector<const void*> all_given;
  std::vector<DirectMoves::Block> all_taken;
  for (std::size_t member = 0; member < members(); ++member) {
    all_given.push_back(given(member));
    all_taken.push_back(taken(member));
  }
  return direct_.move(all_given, all_taken, may_be_read, ahead);
}

// A rank that is not the root of a gather has no output.
void ShmCommunicator::gather_blocks(const Collective& call) {
  const void* const in = call.in;
  void* const out = call.kind == Call::gather && rank() != call.root ? nullptr : call.out;
  const Blocks bytes = blocks_of(call, members(), dtype_size(call.dtype));
  const bool others_read = call.kind != Call::gather || rank() != call.root;
  const std::size_t largest = bytes.largest();
  const auto given = [&](std::size_t /*member*/) { return in; };
  const auto taken = [&](std::size_t member) {
    return out == nullptr ? DirectMoves::Block{nullptr, 0}
                          : DirectMoves::Block{at(out, bytes.begin(member)), bytes.size(member)};
  };
  MovePath path(direct_, path_tuners_.at(call.kind), largest);
  if (path.is_direct() && move_directly(true, given, taken, out == nullptr ? bytes.size(self_) : 0)) return path.end();
  MoveStore store(*this, call.kind, largest);
  std::size_t begin = 0;
  do {
    const std::size_t own = bytes.part(self_, begin, slot_bytes);
    if (others_read) copy_part(slots_.of(self_), in, begin, own);
    if (out != nullptr) copy_part(at(out, bytes.begin(self_) + begin), in, begin, own, store.out());
    barrier_.arrive_and_wait();
    for (std::size_t member = 0; member < members() && out != nullptr; ++member) {
      if (member == self_) continue;
      if (const std::size_t part = bytes.part(member, begin, slot_bytes); part > 0) {
        copy(at(out, bytes.begin(member) + begin), slots_.of(member), part, store.out());
      }
    }
    slots_.advance();
    begin += slot_bytes;
  } while (begin < largest);
  store.end();
  path.end();
}

void ShmCommunicator::scatter(const Collective& call) {
  const void* const in = call.in;
  void* const out = call.out;
  const std::size_t bytes = call.count * dtype_size(call.dtype);
  const std::size_t block = slot_bytes / members() / cache_line_bytes * cache_line_bytes;
  const auto root = static_cast<std::size_t>(call.root);
  const auto given = [&](std::size_t member) { return rank() == call.root ? at(in, member * bytes) : nullptr; };
  const auto taken = [&](std::size_t member) { return DirectMoves::Block{out, member == root ? bytes : 0}; };
  MovePath path(direct_, path_tuners_.at(call.kind), bytes);
  if (path.is_direct() && move_directly(true, given, taken)) return path.end();
  MoveStore store(*this, call.kind, bytes);
  std::size_t begin = 0;
  do {
    const std::size_t part = std::min(block, bytes - begin);
    for (std::size_t member = 0; member < members() && rank() == call.root; ++member) {
      if (member != self_) copy_part(slots_.of(self_) + member * block, in, member * bytes + begin, part);
    }
    barrier_.arrive_and_wait();
    if (rank() == call.root) {
      copy_part(at(out, begin), in, self_ * bytes + begin, part, store.out());
    } else {
      copy(at(out, begin), slots_.of(root) + self_ * block, part, store.out());
    }
    slots_.advance();
    begin += part;
  } while (begin < bytes);
  store.end();
  path.end();
}

void ShmCommunicator::broadcast(const Collective& call) {
  const void* const in = call.in;
  void* const out = call.out;
  const std::size_t bytes = call.count * dtype_size(call.dtype);
  const bool is_root = rank() == call.root;
  const auto root = static_cast<std::size_t>(call.root);
  const auto given = [&](std::size_t /*member*/) { return in; };
  const auto taken = [&](std::size_t member) { return DirectMoves::Block{out, member == root ? bytes : 0}; };
  MovePath path(direct_, path_tuners_.at(call.kind), bytes);
  if (path.is_direct() && move_directly(true, given, taken, is_root && in == out ? bytes : 0)) return path.end();
  MoveStore store(*this, call.kind, bytes);
  std::size_t begin = 0;
  do {
    const std::size_t part = std::min(slot_bytes, bytes - begin);
    if (is_root) copy(slots_.of(self_), at(in, begin), part, Store::cached);
    barrier_.arrive_and_wait();
    copy(at(out, begin), is_root ? at(in, begin) : slots_.of(root), part, store.out());
    slots_.advance();
    begin += part;
  } while (begin < bytes);
  store.end();
  path.end();
}

// All ranks first tell all others what they send in an all_to_all_v, so that they agree on the number of chunks. Returns the
// elements of the largest block of any pair of ranks.
std::size_t ShmCommunicator::compare_counts(const Collective& call) {
  copy(slots_.of(self_), call.counts.data(), call.counts.size_bytes(), Store::cached);
  barrier_.arrive_and_wait();
  std::size_t largest = 0;
  for (std::size_t member = 0; member < members(); ++member) {
    std::vector<std::size_t> sent(members());
    copy(sent.data(), slots_.of(member), members() * sizeof(std::size_t), Store::cached);
    largest = std::max(largest, *std::max_element(sent.begin(), sent.end()));
    if (sent[self_] == call.recv_counts[member]) continue;
    monitor_.abort_and_throw(TNT_MISMATCH,
                             block_mismatch_message(barrier_.members()[member], sent[self_], barrier_.members()[self_],
                                                    call.recv_counts[member], call, barrier_.calls()));
  }
  slots_.advance();
  return largest;
}

// Each destination has a block of this rank's slot. Works in place where to and from are equal, because a rank's chunks are
// sent before other chunks arrive there.
void ShmCommunicator::exchange_blocks(const Collective& call) {
  const void* const in = call.in;
  void* const out = call.out;
  const std::size_t size = dtype_size(call.dtype);
  const bool uneven = call.kind == Call::all_to_all_v;
  const std::size_t largest = (uneven ? compare_counts(call) : call.count) * size;  // of any pair of ranks
  const Blocks to = blocks_of(call, members(), size);
  const Blocks from = uneven ? Blocks(call.recv_counts, size) : to;
  const std::size_t block = slot_bytes / members() / cache_line_bytes * cache_line_bytes;
  const auto given = [&](std::size_t member) { return in == nullptr ? nullptr : at(in, to.begin(member)); };
  const auto taken = [&](std::size_t member) { return DirectMoves::Block{at(out, from.begin(member)), from.size(member)}; };
  MovePath path(direct_, path_tuners_.at(Call::all_to_all), largest);
  if (path.is_direct() && move_directly(in != out, given, taken)) return path.end();
  MoveStore store(*this, Call::all_to_all, largest);
  std::size_t begin = 0;
  do {
    for (std::size_t member = 0; member < members(); ++member) {
      const std::size_t part = to.part(member, begin, block);
      if (member != self_) copy_part(slots_.of(self_) + member * block, in, to.begin(member) + begin, part);
    }
    barrier_.arrive_and_wait();
    copy_part(at(out, from.begin(self_) + begin), in, to.begin(self_) + begin, to.part(self_, begin, block), store.out());
    for (std::size_t member = 0; member < members(); ++member) {
      if (member == self_) continue;
      if (const std::size_t part = from.part(member, begin, block); part > 0) {
        copy(at(out, from.begin(member) + begin), slots_.of(member) + self_ * block, part, store.out());
      }
    }
    slots_.advance();
    begin += block;
  } while (begin < largest);
  store.end();
  path.end();
}

std::unique_ptr<Communicator> ShmCommunicator::split(int color, int key, const CallContext& context) {
  return split_in_memory(color, key, context);
}

std::unique_ptr<Communicator> ShmCommunicator::duplicate(const CallContext& context) {
  auto same = split_in_memory(0, 0, context);
  same->monitor_.follow(error_record(*region_, members()), region_);
  return same;
}

// Every rank learns all colours and keys. The first member of each group allocates a region and tells the others its offset.
std::unique_ptr<ShmCommunicator> ShmCommunicator::split_in_memory(int color, int key, const CallContext& context) {
  const SplitKey own{.color = color, .key = key, .id = 0};
  std::vector<SplitKey> keys(members());
  run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, keys.data()}, context);
  const std::vector<int> part = members_of_color(keys, color);
  const bool leads = color >= 0 && part.front() == rank();
  const std::uint64_t region = leads ? world_->allocate(region_bytes(part.size())) : 0;
  std::vector<std::uint64_t> regions(members());
  run({{.kind = Call::all_gather, .count = sizeof(region)}, &region, regions.data()}, context);
  return color < 0 ? nullptr : make_part(part, regions[static_cast<std::size_t>(part.front())]);
}

std::unique_ptr<Communicator> ShmCommunicator::create_group(std::span<const int> members, int tag, const CallContext& context) {
  const auto draw = [&] { return world_->allocate(region_bytes(members.size())); };
  return make_part(members, group_ids_.agree(members, tag, draw, context));
}

std::unique_ptr<ShmCommunicator> ShmCommunicator::make_part(std::span<const int> members, std::uint64_t region) const {
  auto part = std::unique_ptr<ShmCommunicator>(
      new ShmCommunicator(world_, region, ranks_in_job(members, barrier_.members()), index_of(rank(), members)));
  part->monitor_.set_scope(monitor_.scope());
  part->region_->set_scope(monitor_.scope());
  return part;
}

// All members are alive now, so their process ids are no others'. A look at each opens its pidfd.
void ShmCommunicator::set_error_scope(ErrorScope scope) {
  monitor_.set_scope(scope);
  region_->set_scope(scope);
  if (scope == ErrorScope::job) return;
  for (const int member : barrier_.members()) (void)world_->peer_status(member);
}

std::unique_ptr<Communicator> ShmCommunicator::shrink(const CallContext& context) {
  const auto draw = [this](std::size_t size) { return world_->allocate(region_bytes(size)); };
  ShmShrink shrink(monitor_, region_->data() + shrink_offset(members()), barrier_.members(), self_);
  const auto [alive, region] = shrink.agree(draw, context);
  return make_part(alive, region);
}

}  // namespace tnt
