// Collectives among ranks on several nodes: shared memory inside a node and a network between nodes, both working at the same
// time. This folder combines the communicators of other folders; it does not move bytes itself.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/executor.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/messages/staging.hpp"
#include "comm/shm/shm_communicator.hpp"

namespace tnt {

// all_reduce and reduce from 4 KiB on: the ranks of each node reduce-scatter a chunk, so that each rank owns a slice. Each rank
// reduces its slice with the ranks that have the same position on the other nodes (the cross-node communicator). The node then
// all-gathers the slices. The network carries one chunk while memory works on the next.
//
// If nodes have different numbers of ranks, as many of each node's first ranks use the network as the smallest node has. The
// node then reduces a chunk to all of its ranks, and each of the first ones broadcasts its slice afterwards: twice the copies
// in memory, and 2(m-1)/(m k) S on the network for each of k.
//
// Sums are a tree over the ranks of each node, then a tree over the nodes, whichever algorithm is used. Where each node has 2^k
// consecutive ranks, this is the tree over all ranks. 16-bit tensors are float32 inside nodes and between them, and the result
// is rounded once. Tensors wider than a 16-bit wire type are cast for the network only, so the sum of a node is rounded and not
// the contributions of its ranks: the one case in which the bits depend on the layout and on the size.
//
// reduce_to_owners: the ranks of a node reduce-scatter a chunk, so that each gets what the ranks of its position on all nodes
// own, and the cross-node communicator reduces that to the owners: (m-1)/(m l) S on the network if all own as many bytes. Nodes
// of different numbers of ranks take the all_reduce.
//
// The flat algorithm over all ranks takes data below 4 KiB, means of small integers, and all other collectives.
//
// Cost of all_reduce for each rank, with m nodes of l ranks: 2(m-1)/(m l) S on the network.
class HierarchicalCommunicator final : public Communicator {
 public:
  // local: the members of `all` on this rank's node, in the same order. Returns `local` if there is one node only, and `all` if
  // the nodes have one rank each. Not collective.
  [[nodiscard]] static std::unique_ptr<Communicator> make(std::unique_ptr<NetworkCommunicator> all,
                                                          std::unique_ptr<Communicator> local);

  [[nodiscard]] int rank() const noexcept override { return global_->rank(); }
  [[nodiscard]] int size() const noexcept override { return global_->size(); }
  [[nodiscard]] int local_rank() const noexcept override { return local_->rank(); }
  [[nodiscard]] int local_size() const noexcept override { return local_->size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "hierarchical"; }

  void run(const Collective& call, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> duplicate_with_flat_sums(const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> create_group(std::span<const int> members, int tag,
                                                           const CallContext& context) override;
  void abort(tnt_status_t status, const std::string& message) noexcept override { global_->abort(status, message); }
  [[nodiscard]] std::vector<std::string> hosts() const override { return global_->hosts(); }
  void cancel() noexcept override;
  [[nodiscard]] std::optional<Error> async_error() const noexcept override { return global_->async_error(); }

 private:
  class AllReduce;
  class OwnerReduce;
  // The ranks with this rank's position on each node, and a thread that reduces among them; no communicator for a rank that
  // does not use the network. Two such communicators take chunks in turn: while one waits for its last message, the messages of
  // the other fill the network.
  struct CrossNode {
    std::unique_ptr<NetworkCommunicator> comm;
    Executor executor;
  };

  [[nodiscard]] bool goes_by_nodes(const FusedBuffer& fused, tnt_op_t op) const;
  void reduce_by_nodes(const Call& call, const FusedBuffer& fused, const CallContext& context);
  void reduce_to_owners(const FusedBuffer& fused, std::span<const int> owners, tnt_op_t op, const CallContext& context);
  // The steps of a call that is reduced inside nodes first. inside: the buffer as the node sees it. dtype: the type that the
  // node's memory holds. wire: the type in which data travels between nodes.
  using Stages = std::function<void(const FusedBuffer& inside, tnt_dtype_t dtype, tnt_dtype_t wire, const CallContext& part)>;
  void by_nodes(const Call& call, const FusedBuffer& fused, const CallContext& context, const Stages& run);

  HierarchicalCommunicator(std::unique_ptr<NetworkCommunicator> all, std::unique_ptr<Communicator> local,
                           const std::vector<std::vector<std::size_t>>& nodes);

  std::unique_ptr<NetworkCommunicator> global_;
  std::unique_ptr<Communicator> local_;
  std::vector<std::size_t> ranks_by_place_;  // the first of each node, then the second, ...; if all nodes have as many
  std::size_t carriers_ = 0;                 // ranks of each node that use the network
  bool equal_nodes_ = true;                  // all ranks of all nodes do
  bool nodes_are_subtrees_ = false;          // subtrees of the tree over all ranks
  StagingPool staging_;
  std::array<CrossNode, 2> cross_;
};

// Propagates an abort between shared memory and the network, with one message for the whole job. For ShmWorld.
[[nodiscard]] std::shared_ptr<RemoteAbortLink> remote_abort_link(std::shared_ptr<NetworkWorld> world);

// A fused buffer in the type that a node's memory holds, for the collectives that go by nodes.
//
// By way of the buffer's own type, as in an all_reduce: contributions are rounded to it before the sum, and the sum once.
void pack_as(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, std::byte* to,
             StagingPool& staging);
void unpack_from(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, const std::byte* from,
                 StagingPool& staging);

// Waits, if there is work. The first error has been reported already, so this one is not.
void wait_quietly(const std::shared_ptr<Work>& work) noexcept;

}  // namespace tnt
