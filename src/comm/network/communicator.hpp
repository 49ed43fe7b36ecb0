// Collectives among ranks that share no memory, over a network such as MPI. Our own kernels take the sums in the tree over
// ranks, so every rank gets the same bits in every run, as in shared memory.
//
// This folder knows the Network interface only. MPI itself is in src/comm/mpi, and shared memory must not be used here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/blocks.hpp"
#include "comm/communicator.hpp"
#include "comm/group_creation.hpp"
#include "comm/network/choice.hpp"
#include "comm/network/messages/collective_handshake.hpp"
#include "comm/network/messages/exchange.hpp"
#include "comm/network/messages/point_to_point.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {

// Small data travels with the first message of a call. Larger data travels in chunks: some chunks are on the network while
// others are packed, reduced or unpacked. They pass through staging memory, except in an all_reduce that has nothing to pack (a
// tensor of the wire type, unscaled), if the network takes memory of the caller. If such a call fails, it closes the network
// before it returns (RequestBatch), so no access is left behind. The network's own collectives are taken where take_native says
// so (native.cpp). Cost of all_reduce: each rank sends 2(n-1)/n S; small data
// takes the time of one message. The algorithms are chosen in choice.hpp.
class NetworkCommunicator final : public Communicator {
 public:
  explicit NetworkCommunicator(const std::shared_ptr<NetworkWorld>& world);  // of all ranks

  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(group_.self); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(group_.size()); }
  [[nodiscard]] int local_rank() const noexcept override { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept override { return local_size_; }
  [[nodiscard]] const char* transport() const noexcept override { return group_.world->network().transport(); }

  void run(const Collective& call, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> duplicate_with_flat_sums(const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> create_group(std::span<const int> members, int tag,
                                                           const CallContext& context) override {
    return create_network_group(members, tag, context);
  }
  void abort(tnt_status_t status, const std::string& message) noexcept override { group_.world->abort(status, message); }
  [[nodiscard]] std::vector<std::string> hosts() const override;
  void cancel() noexcept override { group_.cancelled = true; }
  [[nodiscard]] std::optional<Error> async_error() const noexcept override { return group_.world->async_error(); }

  // Where the network's own collectives are taken from now on, with their order of summation: in this communicator, and in
  // those that are split from it with the same members. Nowhere until this is called. The same on all ranks, between calls.
  void take_native(const NativeChoice& choice) noexcept { native_choice_ = choice; }
  [[nodiscard]] bool has_native() const noexcept { return native_ != nullptr; }

  // For the hierarchical communicator. split_network: split with its concrete type. subgroup: a communicator of these ranks,
  // including this one, made without communication; each rank may be in one of each index, 0 and 1. begin_handshake,
  // finish_handshake, end_call: of a collective whose data travels elsewhere.
  [[nodiscard]] std::unique_ptr<NetworkCommunicator> split_network(int color, int key, const CallContext& context);
  [[nodiscard]] std::unique_ptr<NetworkCommunicator> create_network_group(std::span<const int> members, int tag,
                                                                          const CallContext& context);
  [[nodiscard]] std::unique_ptr<NetworkCommunicator> subgroup(std::vector<int> members, int index) const;
  // Sums are over groups of these sizes, one after another in order: a tree over each group, then one over the groups. Until
  // this is called: one tree over all members.
  void set_reduction_order(std::vector<std::size_t> order, std::vector<std::size_t> groups) {
    reduction_order_ = std::move(order);
    reduction_groups_ = std::move(groups);
  }
  // In place of the choice by size, where the data allows: gather and doubling are only for small data. The same on all ranks.
  // That of all_reduce is also that of reduce.
  struct Forced {
    std::optional<AllReduceAlgorithm> all_reduce = std::nullopt;
    std::optional<AllGatherAlgorithm> all_gather = std::nullopt;
    std::optional<ReduceScatterAlgorithm> reduce_scatter = std::nullopt;
  };
  void force(const Forced& algorithms) noexcept { forced_ = algorithms; }
  // As measure_doubling found it; also for all communicators that are made of this one afterwards. The same on all ranks.
  void set_doubling(std::optional<DoublingRange> bytes) noexcept { doubling_ = bytes; }
  [[nodiscard]] bool is_on_one_node() const noexcept { return group_.one_node; }
  void begin_handshake(const Call& call, const CallContext& context) { handshake_.begin(call, context); }
  void finish_handshake() { handshake_.finish(); }
  void end_call() noexcept { handshake_.end(); }
  [[nodiscard]] NetworkWorld& world() const noexcept { return *group_.world; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return group_.members; }
  [[nodiscard]] std::size_t staging_bytes() const { return staging_.bytes(); }  // for the chunks of collectives

 private:
  class AllReduce;
  class AllGather;
  class Broadcast;

  NetworkCommunicator(std::shared_ptr<NetworkWorld> world, std::uint64_t context, std::vector<int> members, std::size_t self);

  [[nodiscard]] std::unique_ptr<NetworkCommunicator> make_part(std::span<const int> members, std::uint64_t id) const;

  // The kinds. Both forms of one, of equal and of uneven blocks, are the same.
  void reduce_scatter(const Collective& call, const CallContext& context);
  void reduce_to_owners(const Collective& call, const CallContext& context);
  void reduce_blocks(const Call& call, const Blocks& counts, const FusedBuffer& fused, void* out, const CallContext& context);
  void all_gather(const Collective& call, const CallContext& context);
  void broadcast(const Collective& call, const CallContext& context);
  void exchange_blocks(const Collective& call, const CallContext& context);
  void exchange_counts(const Collective& call, const CallContext& context);
  // Of an all_reduce, or to the root of a reduce.
  void reduce_tensors(const Collective& call, const CallContext& context);
  void reduce_directly(const Call& call, const FusedBuffer& fused, std::optional<std::size_t> root, const CallContext& context);
  void reduce_gathered(const Call& call, const FusedBuffer& fused, bool wanted, const CallContext& context);

  [[nodiscard]] bool takes_native(const Call& call, std::size_t bytes) const;
  void all_reduce_natively(const FusedBuffer& fused, const Call& call, const CallContext& context);
  void run_natively(const Call& call, const CallContext& context, const std::function<std::unique_ptr<Request>()>& start);

  [[nodiscard]] AllReduceAlgorithm all_reduce_algorithm(const FusedBuffer& fused, tnt_op_t op) const;
  [[nodiscard]] ReduceScatterAlgorithm reduce_scatter_algorithm(const Call& call, std::size_t bytes) const;

  // out: the reduction of count elements at source(member) of each member.
  template <typename Source>
  void reduce_sources(void* out, const Source& source, std::size_t count, tnt_dtype_t dtype, tnt_op_t op) const {
    std::vector<const void*> sources;
    sources.reserve(group_.size());
    for (const std::size_t member : reduction_order_) sources.push_back(source(member));
    tnt::reduce(out, sources, count, dtype, op, best_isa(), reduction_groups_);
  }

  Group group_;
  std::vector<std::size_t> reduction_order_;
  std::vector<std::size_t> reduction_groups_;
  Forced forced_;
  std::optional<DoublingRange> doubling_;
  std::shared_ptr<NativeCollectives> native_;
  NativeChoice native_choice_;
  CollectiveHandshake handshake_;
  StagingPool staging_;  // for the chunks of collectives
  PointToPoint point_to_point_;
  PointToPoint group_channel_;
  GroupIds group_ids_;
  int local_rank_ = 0;
  int local_size_ = 0;
};

}  // namespace tnt
