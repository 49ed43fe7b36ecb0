// How the ranks of a communicator that are alive agree on who they are, while more of them may die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/shm/peer_monitor.hpp"

namespace tnt {

// Each rank arrives, and waits until every other one has arrived, has died or has left. It then proposes those that have
// arrived. One compare-and-exchange decides between the proposals, so all ranks get the same one, also if its author dies. The
// first rank whose deadline passes proposes without those that are missing; they find out if they arrive later.
class ShmShrink {
 public:
  [[nodiscard]] static std::size_t bytes(std::size_t members) noexcept;

  // memory: bytes(members) zero bytes that all members share. members: their ranks in the job; self: an index into members.
  ShmShrink(PeerMonitor& monitor, std::byte* memory, const std::vector<int>& members, std::size_t self);

  struct Decision {
    std::vector<int> members;  // in their order, as indices
    std::uint64_t region;
  };
  // draw: a region for so many members. Throws TNT_TIMEOUT if the others have decided without this rank, TNT_INVALID_ARGUMENT
  // if this rank has called it before, or the error of an abort of the job.
  [[nodiscard]] Decision agree(const std::function<std::uint64_t(std::size_t members)>& draw, const CallContext& context);

 private:
  struct Control;
  struct Member;
  [[nodiscard]] bool arrived(std::size_t member) const noexcept;
  [[nodiscard]] bool none_is_missing() const;
  void propose(const std::function<std::uint64_t(std::size_t members)>& draw);

  PeerMonitor& monitor_;
  Control* control_;
  Member* members_memory_;
  const std::vector<int>& members_;
  std::size_t self_;
};

}  // namespace tnt
