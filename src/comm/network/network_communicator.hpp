// Collectives among ranks that share no memory, over a network such as MPI. Sums are taken by our own kernels in rank order:
// the same bits on every rank, in every run, as in shared memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/network/collective_handshake.hpp"
#include "comm/network/exchange.hpp"
#include "comm/network/point_to_point.hpp"

namespace tnt {

// Little data goes from each to each with the call's first message. More goes in chunks through staging memory, some of
// which are on their way while others are packed, reduced or unpacked: no buffer of the caller is ever the network's, so a call
// that fails leaves none behind. Cost of all_reduce: 2(n-1)/n S sent by each rank, in two messages' time if S is small.
class NetworkCommunicator final : public Communicator {
 public:
  explicit NetworkCommunicator(const std::shared_ptr<NetworkWorld>& world);  // of all ranks

  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(group_.self); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(group_.size()); }
  [[nodiscard]] int local_rank() const noexcept override { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept override { return local_size_; }
  [[nodiscard]] const char* transport() const noexcept override { return "mpi"; }

  void all_reduce(const FusedBuffer& fused, tnt_op_t op, const CallContext& context) override;
  void reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                      const CallContext& context) override;
  void all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const CallContext& context) override;
  void broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                 const CallContext& context) override;
  void all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const CallContext& context) override;
  void barrier(const CallContext& context) override;
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, int to, const CallContext& context) override;
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, int from, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) override;
  void abort(tnt_status_t status, const std::string& message) noexcept override { group_.world->abort(status, message); }
  void cancel() noexcept override { group_.cancelled = true; }
  [[nodiscard]] std::optional<Error> async_error() const noexcept override { return group_.world->async_error(); }

  // For the hierarchical communicator, which has a part of its work done here. part: split, by its type. lane: of these ranks,
  // this one among them, without a word to the others; each rank may be in one of each
  // number, 0 and 1. begin_handshake, finish_handshake: a collective of which the data
  // goes other ways; all members compare their calls.
  [[nodiscard]] std::unique_ptr<NetworkCommunicator> split_network(int color, int key, const CallContext& context);
  [[nodiscard]] std::unique_ptr<NetworkCommunicator> subgroup(std::vector<int> members, int index) const;
  void begin_handshake(const Call& call, const CallContext& context) { handshake_.begin(call, context); }
  void finish_handshake() { handshake_.finish(); }
  [[nodiscard]] NetworkWorld& world() const noexcept { return *group_.world; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return group_.members; }

 private:
  class AllReduce;
  class ReduceScatter;
  class AllGather;
  class Broadcast;
  class AllToAll;

  NetworkCommunicator(std::shared_ptr<NetworkWorld> world, std::uint64_t context, std::vector<int> members, std::size_t self);

  Group group_;
  CollectiveHandshake handshake_;
  StagingPool staging_;  // of the collectives' chunks
  PointToPoint point_to_point_;
  int local_rank_ = 0;
  int local_size_ = 0;
};

}  // namespace tnt
