#include "comm/shm/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include "comm/error_messages.hpp"

namespace tnt {
namespace {

constexpr std::size_t max_packet_bytes = std::size_t{64} * 1024;
constexpr std::size_t all_packets = std::size_t{1} << 30;  // approximate limit of the address space for all packets
constexpr std::size_t page = 4096;

}  // namespace

std::size_t ShmMailbox::packet_bytes(std::size_t members) noexcept {
  return std::clamp(all_packets / (members * members * n_slots) / page * page, page, max_packet_bytes);
}

std::size_t ShmMailbox::channel_bytes(std::size_t members) noexcept {
  static_assert(sizeof(Channel) <= page);
  return page + n_slots * packet_bytes(members);
}

std::size_t ShmMailbox::bytes(std::size_t members) noexcept { return members * members * channel_bytes(members); }

ShmMailbox::ShmMailbox(PeerMonitor& monitor, std::byte* memory, const std::vector<int>& members, std::size_t self,
                       FlightLane lane)
    : monitor_(monitor),
      memory_(memory),
      members_(members),
      self_(self),
      packet_bytes_(packet_bytes(members.size())),
      backoff_(monitor.world().backoff_policy(members).beside_computing()),  // messages of a pipeline, whose stages compute
      lane_(std::move(lane)) {}

ShmMailbox::Channel& ShmMailbox::channel(std::size_t from, std::size_t to) const noexcept {
  return *reinterpret_cast<Channel*>(memory_ + (from * members_.size() + to) * channel_bytes(members_.size()));
}

std::byte* ShmMailbox::packet(Channel& channel, std::uint64_t number) const noexcept {
  return reinterpret_cast<std::byte*>(&channel) + page + number % n_slots * packet_bytes_;
}

void ShmMailbox::check(const WaitInfo& info, const Deadline& deadline) {
  lane_.still_waits(now_ns());
  monitor_.check(info, deadline);
}

void ShmMailbox::send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) {
  monitor_.throw_if_aborted();
  Channel& ring = channel(self_, to);
  const Deadline deadline(context.timeout);
  const Call call{.kind = Call::send, .dtype = dtype, .root = members_[to], .count = count};
  const auto message = lane_.begin_message(call, context.detail, deadline.begin_ns());
  const auto has_space = [&] { return ring.written.load() - ring.consumed.load() < n_slots; };
  const WaitInfo info{.members = members_,
                      .missing = [&](std::size_t member) { return member == to && !has_space(); },
                      .waiter = [&] { return message_waiter(members_[self_], describe(call), context); }};
  const std::size_t size = count * dtype_size(dtype);
  std::size_t begin = 0;
  std::int64_t waited_until = 0;
  do {  // an empty message is one packet
    const std::int64_t now = wait_until(ring.event_count, backoff_, has_space, [&] { check(info, deadline); });
    waited_until = std::max(waited_until, now);
    const std::uint64_t number = ring.written.load();
    const std::size_t part = std::min(packet_bytes_, size - begin);
    if (begin == 0) ring.messages[number % n_slots] = {count, dtype};
    if (part > 0) std::memcpy(packet(ring, number), static_cast<const std::byte*>(in) + begin, part);
    ring.written.store(number + 1);
    notify_all(ring.event_count);
    begin += part;
  } while (begin < size);
  FlightLane::end_message(message, waited_until);
}

void ShmMailbox::recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) {
  monitor_.throw_if_aborted();
  Channel& ring = channel(from, self_);
  const Deadline deadline(context.timeout);
  const Call call{.kind = Call::recv, .dtype = dtype, .root = members_[from], .count = count};
  const auto message = lane_.begin_message(call, context.detail, deadline.begin_ns());
  const auto has_packet = [&] { return ring.written.load() > ring.consumed.load(); };
  const WaitInfo info{.members = members_,
                      .missing = [&](std::size_t member) { return member == from && !has_packet(); },
                      .waiter = [&] { return message_waiter(members_[self_], describe(call), context); }};
  const std::size_t size = count * dtype_size(dtype);
  std::size_t begin = 0;
  std::int64_t waited_until = 0;
  do {
    const std::int64_t now = wait_until(ring.event_count, backoff_, has_packet, [&] { check(info, deadline); });
    waited_until = std::max(waited_until, now);
    const std::uint64_t number = ring.consumed.load();
    const Message sent = ring.messages[number % n_slots];
    if (begin == 0 && sent != Message{count, dtype}) {
      const Call other{.kind = Call::send, .dtype = sent.dtype, .root = members_[self_], .count = sent.count};
      monitor_.abort_and_throw(TNT_MISMATCH, unlike_messages(members_[self_], describe(call), members_[from], describe(other)));
    }
    const std::size_t part = std::min(packet_bytes_, size - begin);
    if (part > 0) std::memcpy(static_cast<std::byte*>(out) + begin, packet(ring, number), part);
    ring.consumed.store(number + 1);
    notify_all(ring.event_count);
    begin += part;
  } while (begin < size);
  FlightLane::end_message(message, waited_until);
}

}  // namespace tnt
