// Ranks that are threads, over a fake network: each on a node of its own, or all on one.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/network/communicator.hpp"
#include "support/fake_network.hpp"

namespace tnt::testing {

// Returns how many messages were sent, without those that say that a rank leaves.
inline std::size_t run_over_network(int ranks, bool one_node, const std::function<void(NetworkCommunicator&)>& body) {
  const auto hub = std::make_shared<FakeHub>(ranks, 10);
  std::vector<std::unique_ptr<NetworkCommunicator>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    auto world = std::make_shared<NetworkWorld>(std::make_shared<FakeNetwork>(hub, rank));
    if (one_node) world->set_nodes(std::vector<int>(static_cast<std::size_t>(ranks), 0));
    all.push_back(std::make_unique<NetworkCommunicator>(std::move(world)));
  }
  std::vector<std::thread> threads;
  for (auto& comm : all) threads.emplace_back([&body, &comm] { body(*comm); });
  for (std::thread& thread : threads) thread.join();
  return hub->messages();
}

}  // namespace tnt::testing
