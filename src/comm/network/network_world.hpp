// What the ranks of a job tell each other over the network beside data: that its communication was ended and why, and that a
// rank has left.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/network/network.hpp"

namespace tnt {

// One for a job's process, shared by its communicators. From any thread.
//
// Ranks may end the communication at the same moment with different messages. Who hears of an ending waits a moment
// for others, then takes the lowest rank's: so all ranks say the same.
class NetworkWorld {
 public:
  explicit NetworkWorld(std::shared_ptr<Network> network);
  NetworkWorld(const NetworkWorld&) = delete;
  NetworkWorld& operator=(const NetworkWorld&) = delete;
  ~NetworkWorld();  // this rank leaves; says so to the others

  [[nodiscard]] Network& network() const noexcept { return *network_; }
  [[nodiscard]] int rank() const noexcept { return network_->rank(); }
  [[nodiscard]] int ranks() const noexcept { return network_->size(); }

  // Which node each rank is on: equal numbers, one node. All on their own until this is called.
  void set_nodes(std::vector<int> nodes) { nodes_ = std::move(nodes); }
  [[nodiscard]] int node(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  // What tells a communicator's messages from others': a number that no other one of this rank's making has, nor the number
  // after it, which are for lanes of the communicator's. tag throws TNT_SYSTEM when the network has no more.
  [[nodiscard]] std::uint64_t allocate_context() noexcept;
  [[nodiscard]] int tag(std::uint64_t context, int kind) const;

  void abort(tnt_status_t status, const std::string& message) noexcept;
  void throw_if_aborted();                                    // looks at the network at most once in a millisecond
  [[nodiscard]] std::optional<Error> async_error() noexcept;  // what throw_if_aborted throws
  [[nodiscard]] bool left(int rank);                          // and what it sent before has had time to arrive

 private:
  struct ControlMessage;
  struct PeerControl {  // from one other rank
    std::shared_ptr<ControlMessage> notice;
    std::unique_ptr<Request> request;
    std::int64_t left_ns = 0;
  };
  void poll();  // with the mutex held
  void post_receive(int rank);
  void send_to_all(const ControlMessage& notice) noexcept;

  std::shared_ptr<Network> network_;
  std::vector<int> nodes_;
  std::atomic<std::uint64_t> contexts_{0};
  std::atomic<bool> aborted_{false};  // some message is known
  std::atomic<std::int64_t> polled_ns_{0};
  std::mutex mutex_;
  std::vector<PeerControl> peers_;
  std::vector<std::unique_ptr<Request>> sent_notices_;
  std::map<int, Error> messages_;  // by the rank that said it
  std::int64_t first_message_ns_ = 0;
  std::optional<Error> agreed_error_;
};

}  // namespace tnt
