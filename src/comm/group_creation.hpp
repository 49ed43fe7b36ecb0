// New communicators of some of a communicator's ranks: who the members are, and how they learn the number under which the
// transport knows their group.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace tnt {

// A rank's arguments of split.
struct SplitKey {
  int color;
  int key;
  std::uint64_t id;  // the group's, if this rank is its first member and the transport needs no more than a number
};

// The ranks with this colour, ordered by key, then by rank.
[[nodiscard]] std::vector<int> members_of_color(std::span<const SplitKey> keys, int color);

// The members' ranks in the job, of a communicator whose ranks have these.
[[nodiscard]] std::vector<int> ranks_in_job(std::span<const int> members, std::span<const int> all);

// The index of value in values, which has it.
[[nodiscard]] std::size_t index_of(int value, std::span<const int> values);

// The first member of a group draws its id and sends it to the other members; the communicator's other ranks take no part. One
// for each communicator. From any thread: a member may learn of several groups in another order than it asks for them.
class GroupIds {
 public:
  // owner: its communicator. channel: nothing else travels on it. ranks: of the owner's members in the job.
  GroupIds(Communicator& owner, MessageChannel& channel, const std::vector<int>& ranks)
      : owner_(owner), channel_(channel), ranks_(ranks) {}

  // members: ranks of the owner. Throws TNT_MISMATCH, and ends the job's communication, if the first member has other members
  // for the same tag.
  [[nodiscard]] std::uint64_t agree(std::span<const int> members, int tag, const std::function<std::uint64_t()>& draw,
                                    const CallContext& context);

 private:
  struct Announcement {
    std::int64_t tag;
    std::uint64_t size;
    std::uint64_t members;  // a hash of them
    std::uint64_t id;
  };
  struct Sender {
    std::deque<Announcement> unclaimed;
    bool awaited = false;  // a thread waits for its next message
  };
  [[nodiscard]] Announcement take(int from, int tag, const CallContext& context);

  Communicator& owner_;
  MessageChannel& channel_;
  const std::vector<int>& ranks_;
  std::mutex sending_;  // one message at a time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Sender> senders_;
};

}  // namespace tnt
