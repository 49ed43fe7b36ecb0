// The messages of one call among the members of a communicator, and the wait for them, which ends at a deadline, an abort or a
// lost peer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/network/messages/staging.hpp"
#include "comm/network/messages/world.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

// The members of a communicator, as its messages address them.
struct Group {
  std::shared_ptr<NetworkWorld> world;
  std::uint64_t context = 0;  // identifies the communicator in tags
  std::vector<int> members;   // ranks in the job
  std::size_t self = 0;       // index into members
  std::vector<int> involved;  // other ranks without which no call ends: those that share nodes with the members
  bool one_node = false;      // whether all members share a node
  std::size_t nodes = 1;      // of the members
  BackoffPolicy backoff{};
  bool test_yields = false;  // Network::test_yields
  std::atomic<bool> cancelled{false};
  FlightLane calls{};     // the record of the collectives
  FlightLane messages{};  // and of the messages

  [[nodiscard]] std::size_t size() const noexcept { return members.size(); }
};

// stamped_tag: of messages that begin with the header of their call.
enum TagKind { handshake_tag, scatter_tag, gather_tag, point_to_point_tag, group_tag, stamped_tag };

// A part of a staging buffer, or of memory of the caller.
struct BufferSlice {
  StagingBuffer buffer;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  [[nodiscard]] std::byte* data() const noexcept { return buffer.get() + offset; }
};

// Requests that are waited for together. Requests that are not complete are cancelled on destruction. If their data is memory
// of the caller, the job is aborted and the network closed, so that the caller's memory is not accessed after the call.
class RequestBatch {
 public:
  explicit RequestBatch(Group& group) : group_(&group) {}
  RequestBatch(RequestBatch&& other) noexcept : group_(other.group_), items_(std::exchange(other.items_, {})) {}
  RequestBatch& operator=(RequestBatch&&) = delete;
  ~RequestBatch() {
    if (!items_.empty()) give_up();
  }

  void send(const BufferSlice& part, std::size_t member, TagKind kind) { start(part, member, kind, false); }
  void receive(const BufferSlice& part, std::size_t member, TagKind kind) { start(part, member, kind, true); }
  // A request that needs all members. in_callers_memory: its data is memory of the caller.
  void add(std::unique_ptr<Request> request, bool in_callers_memory);

  // Returns when all requests are complete. Throws and aborts the job: TNT_PEER_LOST if a missing rank has left, TNT_TIMEOUT.
  // Also throws the error of an earlier abort. call: of all members, if all take part. waiter: "rank 0 in barrier (call 7)".
  // meanwhile: called every few milliseconds, may throw.
  void wait(
      const CallContext& context, std::optional<WaitingCall> call, const std::function<std::string()>& waiter,
      const std::function<void()>& meanwhile = [] {});
  // Whether all requests are complete; does not wait.
  [[nodiscard]] bool completed() {
    (void)poll_all();
    return items_.empty();
  }

 private:
  struct Item {
    std::unique_ptr<Request> request;
    std::size_t member;  // all_members: of a collective
    bool incoming;
    bool callers;  // the data is memory of the caller
  };
  void start(const BufferSlice& message, std::size_t member, TagKind kind, bool incoming);
  void start_whole(const BufferSlice& part, std::size_t member, TagKind kind, bool incoming);
  static constexpr std::size_t all_members = ~std::size_t{0};
  [[nodiscard]] bool poll();  // true if a request has completed; looks at them in turn, up to the first that is not
  bool poll_all();
  void give_up() noexcept;
  void check_peers(double timeout, bool passed, std::optional<WaitingCall> call, const std::function<std::string()>& waiter);
  [[nodiscard]] std::vector<int> missing() const;
  // Those without which a message cannot come. A member may leave when its part of a collective is done.
  [[nodiscard]] std::vector<int> needed() const;

  Group* group_;
  std::vector<Item> items_;  // not complete
};

// Aborts the job and throws the error that all ranks throw: this one or an earlier one.
[[noreturn]] void abort_and_throw(NetworkWorld& world, tnt_status_t status, const std::string& message);

}  // namespace tnt
