// The network communicator over the fake network, all ranks on one node.
#include "comm/network/communicator.hpp"
#include "support/fake_network.hpp"
#include "support/transport.hpp"

namespace tnt::testing {
namespace {

class NetworkTransport final : public Transport {
 public:
  explicit NetworkTransport(int ranks) : hub_(std::make_shared<FakeHub>(ranks, 10)) {}

  [[nodiscard]] std::unique_ptr<Communicator> join(int rank) override {
    auto world = std::make_shared<NetworkWorld>(std::make_shared<FakeNetwork>(hub_, rank));
    world->set_nodes(std::vector<int>(static_cast<std::size_t>(hub_->ranks()), 0));
    return std::make_unique<NetworkCommunicator>(std::move(world));
  }

 private:
  std::shared_ptr<FakeHub> hub_;
};

}  // namespace

Groups summed_groups(int ranks) { return one_group(static_cast<std::size_t>(ranks)); }

std::unique_ptr<Transport> make_transport(int ranks) { return std::make_unique<NetworkTransport>(ranks); }

}  // namespace tnt::testing
