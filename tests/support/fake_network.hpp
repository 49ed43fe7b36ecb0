// A network inside one process, for ranks that are threads. Messages with the same sender, receiver and tag keep their order,
// as in MPI; others may overtake each other, and some are delayed. A small send completes at once, a large one when it is
// received. A message that is longer than its receive is an error of the receiver, as in MPI.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/network/communicator.hpp"
#include "comm/network/messages/network.hpp"

namespace tnt::testing {

class FakeHub {
 public:
  FakeHub(int ranks, int late_percent, unsigned seed = 1) : ranks_(ranks), late_percent_(late_percent), random_(seed) {}

  struct State {  // the end of a message; protected by the hub's mutex
    std::shared_ptr<void> memory;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool done = false;
    bool given_up = false;
    std::string error;
    std::int64_t ready_ns = 0;
    std::shared_ptr<State> sender;
    std::shared_ptr<std::byte[]> copy;
  };
  using Place = std::tuple<int, int, int>;  // from, to, tag

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] std::shared_ptr<State> send(const Place& place, const void* data, std::size_t bytes,
                                            std::shared_ptr<void> memory);
  [[nodiscard]] std::shared_ptr<State> receive(const Place& place, void* data, std::size_t bytes, std::shared_ptr<void> memory);
  [[nodiscard]] bool test(const Place& place, State& state);
  void give_up(State& state);
  void close(int rank);                  // forgets the rank's messages in memory of the caller
  [[nodiscard]] std::size_t messages();  // that were sent so far

 private:
  struct Channel {
    std::deque<std::shared_ptr<State>> sent;
    std::deque<std::shared_ptr<State>> wanted;
  };
  void deliver(const Place& place);
  void deliver(Channel& channel, std::deque<std::shared_ptr<State>>& receives);

  int ranks_;
  int late_percent_;
  std::mutex mutex_;
  std::mt19937 random_;
  std::size_t messages_ = 0;
  std::map<Place, Channel> channels_;
};

class FakeNetwork final : public Network {
 public:
  FakeNetwork(std::shared_ptr<FakeHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return hub_->ranks(); }
  [[nodiscard]] std::string name() const override { return "the tests' network"; }
  [[nodiscard]] const char* transport() const noexcept override { return "mpi"; }
  [[nodiscard]] int max_tag() const noexcept override { return 32767; }               // the smallest value that MPI allows
  [[nodiscard]] std::size_t unasked_bytes() const noexcept override { return 4032; }  // as Open MPI
  [[nodiscard]] bool takes_callers_memory() const noexcept override { return true; }
  void close() noexcept override { hub_->close(rank_); }
  [[nodiscard]] std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                               std::shared_ptr<void> memory) override;
  // Their sums begin at the last rank, one after another: never the tree over ranks, from three ranks on.
  [[nodiscard]] std::shared_ptr<NativeCollectives> native_collectives() override;
  void skip_finalize() noexcept override {}

 private:
  std::shared_ptr<FakeHub> hub_;
  int rank_;
};

// Ranks that are threads, over this network: each on a node of its own, or all on one. Returns how many messages were sent,
// without those that say that a rank leaves.
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
