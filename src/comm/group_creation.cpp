#include "comm/group_creation.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/hash.hpp"
#include "comm/error_messages.hpp"

namespace tnt {

std::vector<int> members_of_color(std::span<const SplitKey> keys, int color) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    if (keys[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return keys[static_cast<std::size_t>(a)].key < keys[static_cast<std::size_t>(b)].key; });
  return members;
}

std::vector<int> ranks_in_job(std::span<const int> members, std::span<const int> all) {
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const int member : members) ranks.push_back(all[static_cast<std::size_t>(member)]);
  return ranks;
}

std::size_t index_of(int value, std::span<const int> values) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

std::uint64_t GroupIds::agree(std::span<const int> members, int tag, const std::function<std::uint64_t()>& draw,
                              const CallContext& context) {
  const std::vector<int> ranks = ranks_in_job(members, ranks_);
  const std::string list = fmt::format("ranks {}", fmt::join(ranks, ", "));
  const std::string detail = fmt::format("create_group of {} with tag {}", list, tag);
  const CallContext call{.timeout = context.timeout, .detail = detail};
  const std::uint64_t hashed = hash(list);
  if (members.front() == owner_.rank()) {
    const Announcement own{.tag = tag, .size = members.size(), .members = hashed, .id = draw()};
    const std::scoped_lock lock(sending_);
    for (const int member : members.subspan(1)) {
      channel_.send(&own, sizeof(own), TNT_UINT8, static_cast<std::size_t>(member), call);
    }
    return own.id;
  }
  const Announcement announced = take(members.front(), tag, call);
  if (announced.members == hashed) return announced.id;
  throw abort_job(
      owner_, TNT_MISMATCH,
      fmt::format("rank {} called {} while rank {} called it with other ranks, {} of them: all members must pass the same list",
                  ranks_[static_cast<std::size_t>(owner_.rank())], detail, ranks.front(), announced.size));
}

// One thread at a time receives; it keeps what others look for.
GroupIds::Announcement GroupIds::take(int from, int tag, const CallContext& context) {
  std::unique_lock lock(mutex_);
  Sender& sender = senders_[from];
  while (true) {
    const auto found = std::find_if(sender.unclaimed.begin(), sender.unclaimed.end(),
                                    [tag](const Announcement& each) { return each.tag == tag; });
    if (found != sender.unclaimed.end()) {
      const Announcement result = *found;
      sender.unclaimed.erase(found);
      return result;
    }
    if (sender.awaited) {
      changed_.wait(lock);
      continue;
    }
    sender.awaited = true;
    lock.unlock();
    Announcement next{};
    std::optional<Error> failure;
    try {
      channel_.recv(&next, sizeof(next), TNT_UINT8, static_cast<std::size_t>(from), context);
    } catch (const Error& error) {
      failure = error;
    }
    lock.lock();
    sender.awaited = false;
    changed_.notify_all();
    if (failure) throw Error(*failure);
    sender.unclaimed.push_back(next);
  }
}

}  // namespace tnt
