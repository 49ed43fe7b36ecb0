// Collectives among devices on several nodes whose network has no direct access to device memory: NCCL inside a node, pinned
// memory and the host's transport between nodes.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "comm/nccl/communicator.hpp"
#include "comm/staged/staged_communicator.hpp"
#include "comm/stream_order.hpp"

namespace tnt {

// Collective over host. host and device must outlive the communicator. node: a text that is equal on the ranks of one node. On
// one node this is NCCL's communicator; if every node has one rank, it is the staged communicator. Errors are those of
// make_nccl_communicator. library: replaces the library that the options name.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_hierarchical_device_communicator(
    Device& device, Communicator& host, const NcclOptions& options, const std::string& node,
    std::shared_ptr<const NcclLibrary> library = nullptr);

// all_reduce in three steps (Horovod calls it hierarchical all-reduce): NCCL reduce-scatter inside the node; each slice through
// the host with the same local rank of the other nodes (the cross-node communicator); NCCL all-gather. Each rank moves S / l on
// the bus and 2(m-1)/(m l) S on the network, with m nodes of l ranks. Data that does not fill l slices (few bytes, or nodes of
// different sizes) is reduced by NCCL, passes through the last rank of each node, and is broadcast. The data is cut into
// chunks, so that NCCL and the network work at the same time and pinned memory stays small. The sum of a node is rounded to the
// type, then the sum over nodes, in a fixed order.
//
// Means, which would round integers twice, and all other collectives use the flat algorithm through pinned memory.
class HierarchicalDeviceCommunicator final : public DeviceCommunicator {
 public:
  struct Topology {  // the position of this rank
    int node = 0;    // first rank of the node
    int local_rank = 0;
    int local_size = 0;
    int nodes = 0;
    bool uniform = true;  // all nodes have the same number of ranks
  };
  // job_rank: see NcclCommunicator
  HierarchicalDeviceCommunicator(Device& device, Communicator& host, const NcclOptions& options, std::string node,
                                 const Topology& topology, std::shared_ptr<const NcclLibrary> library, int job_rank);

  [[nodiscard]] int rank() const noexcept override { return host_.rank(); }
  [[nodiscard]] int size() const noexcept override { return host_.size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "hierarchical"; }
  [[nodiscard]] std::string version() const override;  // "NCCL 2.28.9 inside nodes, mpi through pinned memory between them"
  [[nodiscard]] StreamHandle stream() const noexcept override { return stream_.get(); }

  void abort(tnt_status_t status, const std::string& message) noexcept override { host_.abort(status, message); }
  void throw_if_aborted() override;
  void check() override;
  void check_capture(StreamHandle stream) override { refuse_capture(device_, stream); }
  [[nodiscard]] std::shared_ptr<void> registered_memory(std::size_t bytes) override { return local_->registered_memory(bytes); }

 private:
  class AllReduce;

  void enqueue_collective(const Collective& call, std::string_view detail) override;
  void enqueue_messages(std::span<const Message> messages, std::string_view detail) override;
  std::unique_ptr<DeviceCommunicator> create_child(int color, int key, Communicator* host) override;
  // steps() enqueues on the communicator of `order`.
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
  std::mutex mutex_;  // keeps the steps of an operation together
  std::unique_ptr<Communicator> local_host_;
  std::unique_ptr<DeviceCommunicator> local_;
  std::unique_ptr<DeviceCommunicator> cross_;  // null for a rank that is in none
  std::unique_ptr<DeviceCommunicator> global_;
  Stream stream_;
  StreamOrder local_order_;
  StreamOrder global_order_;
  Event local_done_;  // recorded on the stream of local_
  Event cross_done_;  // recorded on the stream of cross_
};

}  // namespace tnt
