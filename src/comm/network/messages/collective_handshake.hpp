// The first message of every collective over a network: each rank tells a neighbour its call. The small data of all members
// travels with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/call.hpp"
#include "comm/network/messages/exchange.hpp"

namespace tnt {

// For the collectives of one communicator, one after another. Each rank compares its call with that of the next member, so in
// the ring of all members a different call is found by one of them at least, and the abort tells all. Calls whose messages
// carry the call are compared by those, and tell the neighbour nothing; they listen to it, as it may make another call.
class CollectiveHandshake {
 public:
  static constexpr std::size_t max_gathered = std::size_t{64} * 1024;  // bytes, of all members
  [[nodiscard]] static bool gathers(std::size_t members, std::size_t bytes) { return members * bytes <= max_gathered; }

  explicit CollectiveHandshake(Group& group) : group_(group) {}

  // Tells the call to the member before this one. Throws no mismatch.
  void begin(const Call& call, const CallContext& context);
  // Waits for the call of the next member. Throws TNT_MISMATCH on all ranks if it is another.
  void finish();
  // In place of begin and finish, for algorithms whose every message is stamped (below), and in which no rank has its result
  // before all ranks have made the call.
  void listen(const Call& call, const CallContext& context);

  // Every member's data on all members: `bytes` from each, where gathers() says so. fill writes this member's. Waits for all
  // members, so with 0 bytes it is a barrier. Throws TNT_MISMATCH as finish. ceil(log2 n) messages: Bruck et al., "Efficient
  // algorithms for all-to-all communications in multiport message-passing systems", 1997, section 4. Few members send to all
  // others at once: one round of n - 1 messages is quicker than two rounds.
  void gather(const Call& call, const CallContext& context, std::size_t bytes, const std::function<void(std::byte* to)>& fill);
  // The data of `member`. Valid after gather, until the next call.
  [[nodiscard]] const std::byte* gathered(std::size_t member) const;

  // For algorithms whose every message begins with the call, so that no rank uses data of another call: stamp writes it to the
  // first header_bytes, check throws as finish.
  static constexpr std::size_t header_bytes = 64;
  static constexpr std::size_t max_stamped =
      header_bytes + max_gathered;  // bytes of a message: room for that of any other call
  void stamp(std::byte* message) const;
  void check(const std::byte* message, std::size_t member) const { compare(message, member); }
  // The bytes of a message, of all, that are sent to the member or received from it before the rest, which is a message of its
  // own: a little more than the network sends unasked is quicker in two. The rest needs max_stamped, as every message.
  [[nodiscard]] std::size_t head_bytes(std::size_t bytes, std::size_t member) const {
    const std::size_t unasked = group_.world->unasked_bytes(group_.members[member]);
    return bytes > unasked && bytes <= 2 * unasked ? unasked : bytes;
  }

  void wait(RequestBatch& batch);                                        // for later messages of the same call
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }  // the number of the call
  // The end of the call, for the record. A call that fails has none there.
  void end() noexcept { group_.calls.end(now_ns()); }

 private:
  struct Header {
    std::uint64_t number;
    Call call;
  };
  static constexpr std::size_t max_direct = 4;                          // members
  static constexpr std::size_t capacity = header_bytes + max_gathered;  // of a message
  static constexpr std::size_t room = 2 * capacity;                     // for what a member sends to all
  static_assert(sizeof(Header) <= header_bytes);

  void start_call(const Call& call, const CallContext& context);
  void compare(const std::byte* arrived, std::size_t member) const;
  void expect_next();
  void look_at_next();
  void wait_for_next();
  void gather_directly();
  [[nodiscard]] std::byte* arrival_from(std::size_t distance) const {  // of gather_directly
    return distance == 1 ? from_next_.get() : incoming_.get() + distance * room;
  }
  [[nodiscard]] std::size_t after(std::size_t distance) const { return (group_.self + distance) % group_.size(); }
  [[nodiscard]] std::size_t before(std::size_t distance) const {
    return (group_.self + group_.size() - distance) % group_.size();
  }
  [[nodiscard]] std::string waiter() const;

  Group& group_;
  StagingPool staging_;
  StagingBuffer outgoing_;  // the header, then the data of members from this one on
  StagingBuffer incoming_;
  StagingBuffer from_next_;           // the message of the next member
  std::optional<RequestBatch> next_;  // its receive: after a call that listened, it is that of a later call
  std::optional<RequestBatch> telling_;
  bool listens_ = false;
  std::size_t bytes_ = 0;  // of one member's data
  std::uint64_t calls_ = 0;
  Call call_;
  CallContext context_{0.0};
};

// By which an algorithm sends and receives.
struct Messaging {
  Group& group;
  CollectiveHandshake& handshake;
  StagingPool& staging;
};

}  // namespace tnt
