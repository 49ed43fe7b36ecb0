// Control messages between the ranks of a job: that the job was aborted and why, and that a rank has left.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/flight_recorder.hpp"
#include "comm/network/messages/network.hpp"
#include "common/error.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// A collective in which a rank waits: of the communicator with this context, its call of this number. 0, 0: another wait.
struct WaitingCall {
  std::uint64_t context = 0;
  std::uint64_t number = 0;
  bool operator==(const WaitingCall&) const = default;
  bool operator<(const WaitingCall& other) const { return std::tie(context, number) < std::tie(other.context, other.number); }
};

// One for each process, shared by its communicators. Thread-safe.
//
// Several ranks may abort at the same time with different messages. A rank that learns of an abort waits a moment for other
// notices and then takes the message of the lowest rank, of those about different calls if there are any, so that all ranks
// report the same error.
class NetworkWorld {
 public:
  static constexpr int tags_per_communicator = 6;  // tag values of one communicator: its context and a TagKind

  // recorder: gets the calls of the communicators; may be null.
  explicit NetworkWorld(std::shared_ptr<Network> network, std::shared_ptr<FlightRecorder> recorder = nullptr);
  ~NetworkWorld();  // tells the other ranks that this rank leaves

  [[nodiscard]] Network& network() const noexcept { return *network_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  [[nodiscard]] int rank() const noexcept { return network_->rank(); }
  [[nodiscard]] int ranks() const noexcept { return network_->size(); }

  // The node of each rank: ranks with equal numbers are on one node. Before this call, every rank is on a node of its own.
  void set_nodes(std::vector<int> nodes) { nodes_ = std::move(nodes); }
  [[nodiscard]] int node(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  // Network::unasked_bytes of messages to and from the rank, which finds the same.
  [[nodiscard]] std::size_t unasked_bytes(int rank) const {
    return node(rank) == node(this->rank()) ? network_->unasked_bytes() : 0;
  }

  // A context separates the messages of communicators: no other communicator of this rank has this number or the next two,
  // which are for its subgroups. tag throws TNT_SYSTEM when the network has no tags left.
  [[nodiscard]] std::uint64_t allocate_context() noexcept;
  [[nodiscard]] int tag(std::uint64_t context, int kind) const;

  void abort(tnt_status_t status, const std::string& message) noexcept;
  // Aborts with this message if nobody has, and closes the network: no message's memory is accessed when it returns.
  void close(const std::string& message) noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  void throw_if_aborted();                                    // polls the network at most once in a millisecond
  [[nodiscard]] std::optional<Error> async_error() noexcept;  // the error that throw_if_aborted throws
  [[nodiscard]] bool lost(int rank);                          // its connection has ended, and it has not left
  [[nodiscard]] bool left(int rank);  // the rank has left, and its earlier messages have had time to arrive

  // While it exists, this rank answers other ranks that it waits in the call.
  class Waiting : NonCopyable {
   public:
    Waiting(NetworkWorld& world, const WaitingCall& call);
    ~Waiting();

   private:
    NetworkWorld& world_;
    WaitingCall call_;
  };
  // The ranks that keep the call from ending: a rank that waits for others is not to blame. Asks the ranks, waits a moment for
  // answers, and returns those of `members` and `others` that answer nothing; if all do, the members that wait in another call.
  // Empty: all members wait in this call.
  [[nodiscard]] std::vector<int> call_roll(const WaitingCall& call, const std::vector<int>& members,
                                           const std::vector<int>& others);
  [[nodiscard]] bool all_wait(const std::vector<int>& ranks);  // whether each of them answers that it waits in some call

 private:
  struct ControlMessage;
  void poll();  // call with the mutex held
  void post_receive();
  void send_to_all(const ControlMessage& notice) noexcept;
  void send_to(int rank, const ControlMessage& notice) noexcept;
  void take(const ControlMessage& notice);
  [[nodiscard]] std::map<int, bool> ask(const WaitingCall& call, const std::vector<int>& ranks);

  std::shared_ptr<Network> network_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::vector<int> nodes_;
  std::atomic<std::uint64_t> contexts_{0};
  std::atomic<bool> aborted_{false};  // at least one abort notice is known
  std::atomic<bool> closed_{false};
  std::atomic<std::int64_t> polled_ns_{0};
  std::mutex mutex_;
  // One receive for all senders, so that neither a poll nor the memory grows with the number of ranks.
  std::shared_ptr<ControlMessage> incoming_;
  std::unique_ptr<Request> receive_;
  std::vector<std::int64_t> left_ns_;  // by rank: when its last notice came; 0 before
  std::vector<std::unique_ptr<Request>> sent_notices_;
  std::map<int, Error> messages_;  // by the rank that sent it
  std::int64_t first_message_ns_ = 0;
  std::optional<Error> agreed_error_;
  std::uint64_t rolls_ = 0;
  std::vector<WaitingCall> waits_;                      // of this rank
  std::map<WaitingCall, std::map<int, bool>> answers_;  // to rolls: by rank, whether it waits in the same call
};

}  // namespace tnt
