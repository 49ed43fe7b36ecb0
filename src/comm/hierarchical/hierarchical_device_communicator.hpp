// Collectives among devices on several nodes whose network does not reach them: NCCL inside a node, pinned memory and the
// host's transport between nodes.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "comm/nccl/nccl_communicator.hpp"
#include "comm/staged/staged_communicator.hpp"
#include "comm/stream_order.hpp"

namespace tnt {

// Collective over host, which has to live as long, as has the device. node: equal on ranks of one node. On one node it is
// NCCL's communicator, and one through pinned memory where no node has two ranks. Errors are those of make_nccl_communicator.
// library: in place of the one that the options name.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_hierarchical_device_communicator(
    Device& device, Communicator& host, const NcclOptions& options, const std::string& node,
    std::shared_ptr<const NcclLibrary> library = nullptr);

// all_reduce in three steps, known from Horovod as hierarchical all-reduce: NCCL's reduce-scatter inside the node, each slice
// through the host with those of the same local rank on the other nodes (a lane), NCCL's all-gather. Each rank has S / l on the
// bus and 2(m-1)/(m l) S on the network, with m nodes of l ranks. What does not make l slices (few bytes; nodes of different
// sizes) is reduced by NCCL, goes through the last rank of each node, and is broadcast. In chunks: NCCL works on one while the
// lane has another, and pinned memory stays small. A node's sum is rounded to the type, then the nodes' sum, in a fixed order.
//
// Means, of which whole numbers would be rounded twice, and all other calls go through pinned memory from rank to rank.
class HierarchicalDeviceCommunicator final : public DeviceCommunicator {
 public:
  struct Topology {  // of this rank
    int node = 0;    // its first rank
    int local_rank = 0;
    int local_size = 0;
    int nodes = 0;
    bool uniform = true;  // as many ranks on each node
  };
  // job_rank: as NcclCommunicator's
  HierarchicalDeviceCommunicator(Device& device, Communicator& host, const NcclOptions& options, std::string node,
                                 const Topology& topology, std::shared_ptr<const NcclLibrary> library, int job_rank);

  [[nodiscard]] int rank() const noexcept override { return host_.rank(); }
  [[nodiscard]] int size() const noexcept override { return host_.size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "hierarchical"; }
  [[nodiscard]] std::string version() const override;  // "NCCL 2.28.9 inside nodes, mpi through pinned memory between them"
  [[nodiscard]] StreamHandle stream() const noexcept override { return stream_.get(); }

  void abort(tnt_status_t status, const std::string& message) noexcept override { host_.abort(status, message); }
  void throw_if_aborted() override;
  void check_capture(StreamHandle stream) override { refuse_capture(device_, stream); }

 private:
  class AllReduce;

  void enqueue_collective(const Call& call, const void* in, void* out, std::string_view detail) override;
  void enqueue_messages(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail) override;
  std::unique_ptr<DeviceCommunicator> part(int color, int key, Communicator* host) override;
  // steps() enqueues on what order is with.
  template <typename Steps>
  void enqueue(StreamOrder& order, Steps&& steps);
  void join_streams() noexcept;

  Device& device_;
  Communicator& host_;
  NcclOptions options_;
  std::string node_identity_;
  Topology topology_;
  std::shared_ptr<const NcclLibrary> library_;
  int job_rank_;
  std::mutex mutex_;  // an operation's steps stay together
  std::unique_ptr<Communicator> local_host_;
  std::unique_ptr<DeviceCommunicator> local_;
  std::unique_ptr<DeviceCommunicator> cross_;  // null for a rank that has none
  std::unique_ptr<DeviceCommunicator> global_;
  Stream stream_;
  StreamOrder local_order_;
  StreamOrder global_order_;
  Event local_done_;  // on the node's stream: what the lane waits for
  Event cross_done_;  // on the lane's
};

}  // namespace tnt
