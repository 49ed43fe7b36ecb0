// Messages of one call to and from members of a communicator, and waiting for them: as long as it makes sense, and no longer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/network/network_world.hpp"
#include "comm/network/staging.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

// A group of ranks as its messages see it.
struct Group {
  std::shared_ptr<NetworkWorld> world;
  std::uint64_t context = 0;  // its tags
  std::vector<int> members;   // ranks in the job
  std::size_t self = 0;       // an index into them
  BackoffPolicy backoff{};
  std::atomic<bool> cancelled{false};

  [[nodiscard]] std::size_t size() const noexcept { return members.size(); }
};

enum TagKind { handshake_tag = 0, scatter_tag = 1, gather_tag = 2, point_to_point_tag = 3 };

// A part of a buffer.
struct BufferSlice {
  StagingBuffer buffer;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  [[nodiscard]] std::byte* data() const noexcept { return buffer.get() + offset; }
};

// Some messages that are waited for together. What has not arrived when it is destroyed is given up.
class RequestBatch {
 public:
  explicit RequestBatch(Group& group) : group_(&group) {}

  void send(const BufferSlice& part, std::size_t member, TagKind kind);
  void receive(const BufferSlice& part, std::size_t member, TagKind kind);

  // Returns when all have arrived. Throws, and ends the job's communication: TNT_PEER_LOST if a rank that is missing has left,
  // TNT_TIMEOUT; or throws what ended it. place: "rank 0 in barrier (call 7)".
  void wait(const CallContext& context, const std::function<std::string()>& waiter);

 private:
  struct Item {
    std::unique_ptr<Request> request;
    std::size_t member;
    bool incoming;
  };
  [[nodiscard]] bool poll();  // true if something has arrived
  void check_peers(double timeout, bool passed, const std::function<std::string()>& waiter);
  [[nodiscard]] std::vector<int> missing() const;

  Group* group_;
  std::vector<Item> items_;  // that have not arrived
};

// Ends the job's communication and throws what all ranks throw: this message or an earlier one.
[[noreturn]] void abort_and_throw(NetworkWorld& world, tnt_status_t status, const std::string& message);

}  // namespace tnt
