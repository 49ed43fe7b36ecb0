// The hierarchical communicator: ranks alternate between two nodes, each with its own shared segment, and the fake network
// between them.
#include <vector>

#include "comm/hierarchical/hierarchical_communicator.hpp"
#include "support/fake_network.hpp"
#include "support/transport.hpp"

namespace tnt::testing {
namespace {

class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(int ranks) : hub_(std::make_shared<FakeHub>(ranks, 10)), members_(2) {
    for (int rank = 0; rank < ranks; ++rank) {
      nodes_.push_back(rank % 2);
      members_[static_cast<std::size_t>(rank % 2)].push_back(rank);
    }
    for (int node = 0; node < 2; ++node) segments_.push_back(std::make_shared<Segment>(Segment::create()));
  }

  [[nodiscard]] std::unique_ptr<Communicator> join(int rank) override {
    const auto node = static_cast<std::size_t>(rank % 2);
    auto world = std::make_shared<NetworkWorld>(std::make_shared<FakeNetwork>(hub_, rank));
    world->set_nodes(nodes_);
    const auto bytes = ShmCommunicator::world_bytes(static_cast<int>(members_[node].size()));
    auto shared = std::make_shared<ShmWorld>(segments_[node], rank, hub_->ranks(), bytes);
    shared->set_remote_abort_link(remote_abort_link(world));
    return HierarchicalCommunicator::make(std::make_unique<NetworkCommunicator>(world),
                                          std::make_unique<ShmCommunicator>(shared, members_[node]));
  }

 private:
  std::shared_ptr<FakeHub> hub_;
  std::vector<int> nodes_;
  std::vector<std::vector<int>> members_;
  std::vector<std::shared_ptr<Segment>> segments_;
};

}  // namespace

// Nodes that do not have equally many ranks, or one each, are reduced over as if there were none.
Groups summed_groups(int ranks) {
  if (ranks < 4 || ranks % 2 != 0) return one_group(static_cast<std::size_t>(ranks));
  Groups nodes(2);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) nodes[rank % 2].push_back(rank);
  return nodes;
}

std::unique_ptr<Transport> make_transport(int ranks) { return std::make_unique<HierarchicalTransport>(ranks); }

}  // namespace tnt::testing
