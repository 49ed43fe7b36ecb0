// The hierarchical communicator: nodes with a shared segment each, and the fake network between them.
#include "support/transport.hpp"

#include <algorithm>

#include "comm/hierarchical/communicator.hpp"
#include "support/fake_network.hpp"

namespace tnt::testing {
namespace {

class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(std::vector<int> nodes)
      : hub_(std::make_shared<FakeHub>(static_cast<int>(nodes.size()), 10)),
        nodes_(std::move(nodes)),
        members_(static_cast<std::size_t>(*std::max_element(nodes_.begin(), nodes_.end())) + 1) {
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      members_[static_cast<std::size_t>(nodes_[rank])].push_back(static_cast<int>(rank));
    }
    for (std::size_t node = 0; node < members_.size(); ++node)
      segments_.push_back(std::make_shared<Segment>(Segment::create()));
  }

  [[nodiscard]] std::unique_ptr<Communicator> join(int rank) override {
    const auto node = static_cast<std::size_t>(nodes_[static_cast<std::size_t>(rank)]);
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

// One node, or nodes of one rank each, are reduced over as if there were none.
Groups summed_groups(int ranks) {
  if (ranks < 3) return one_group(static_cast<std::size_t>(ranks));
  Groups nodes(2);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) nodes[rank % 2].push_back(rank);
  return nodes;
}

std::unique_ptr<Transport> make_transport(int ranks) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank % 2);
  return make_transport_on(std::move(nodes));
}

std::unique_ptr<Transport> make_transport_on(std::vector<int> nodes) {
  return std::make_unique<HierarchicalTransport>(std::move(nodes));
}

}  // namespace tnt::testing
