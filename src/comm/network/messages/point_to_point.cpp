#include "comm/network/messages/point_to_point.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "comm/error_messages.hpp"

namespace tnt {
namespace {

constexpr std::size_t first_bytes = std::size_t{8} * 1024;    // of the data, in the message with the header
constexpr std::size_t chunk_bytes = std::size_t{512} * 1024;  // of the following messages

}  // namespace

FlightLane::Message PointToPoint::record(Call::Kind kind, std::size_t count, tnt_dtype_t dtype, std::size_t peer,
                                         const CallContext& context) {
  if (tag_ != point_to_point_tag) return {};
  const Call call{.kind = kind, .dtype = dtype, .root = group_.members[peer], .count = count};
  return group_.messages.begin_message(call, context.detail, now_ns());
}

void PointToPoint::send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) {
  group_.world->throw_if_aborted();
  const auto message = record(Call::send, count, dtype, to, context);
  const auto here = [&] {
    const Call call{.kind = Call::send, .dtype = dtype, .root = group_.members[to], .count = count};
    return message_waiter(group_.members[group_.self], describe(call), context);
  };
  const std::size_t size = count * dtype_size(dtype);
  const Header header{count, static_cast<std::uint64_t>(dtype)};
  std::size_t part = std::min(first_bytes, size);
  std::array<std::optional<RequestBatch>, 2> batches;
  const auto begin = [&](std::size_t number, const BufferSlice& next) {
    if (auto& before = batches[number % 2]) before->wait(context, std::nullopt, here);
    batches[number % 2].emplace(group_).send(next, to, tag_);
  };
  const BufferSlice first{staging_.acquire(sizeof(header) + part), 0, sizeof(header) + part};
  std::memcpy(first.data(), &header, sizeof(header));
  if (part > 0) std::memcpy(first.data() + sizeof(header), in, part);
  begin(0, first);
  std::size_t number = 1;
  for (std::size_t at = part; at < size; at += part, ++number) {
    part = std::min(chunk_bytes, size - at);
    const BufferSlice next{staging_.acquire(part), 0, part};
    std::memcpy(next.data(), static_cast<const std::byte*>(in) + at, part);
    begin(number, next);
  }
  for (std::size_t i : {number, number + 1}) {
    if (auto& last = batches[i % 2]) last->wait(context, std::nullopt, here);
  }
  FlightLane::end_message(message, now_ns());
}

void PointToPoint::recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) {
  group_.world->throw_if_aborted();
  const auto message = record(Call::recv, count, dtype, from, context);
  const int self = group_.members[group_.self];
  const auto what = [&] {
    return describe({.kind = Call::recv, .dtype = dtype, .root = group_.members[from], .count = count});
  };
  const auto here = [&] { return message_waiter(self, what(), context); };
  const std::size_t size = count * dtype_size(dtype);
  const BufferSlice first{staging_.acquire(sizeof(Header) + first_bytes), 0, sizeof(Header) + first_bytes};
  RequestBatch batch(group_);
  batch.receive(first, from, tag_);
  batch.wait(context, std::nullopt, here);
  Header sent{};
  std::memcpy(&sent, first.data(), sizeof(sent));
  if (sent.count != count || sent.dtype != static_cast<std::uint64_t>(dtype)) {
    const Call other{.kind = Call::send, .dtype = static_cast<tnt_dtype_t>(sent.dtype), .root = self, .count = sent.count};
    abort_and_throw(*group_.world, TNT_MISMATCH, unlike_messages(self, what(), group_.members[from], describe(other)));
  }
  const std::size_t in_first = std::min(first_bytes, size);
  if (in_first > 0) std::memcpy(out, first.data() + sizeof(sent), in_first);

  struct Arriving {
    RequestBatch batch;
    BufferSlice part;
  };
  std::array<std::optional<Arriving>, 2> arriving;
  const auto expect = [&](std::size_t at) {
    if (at >= size) return;
    const std::size_t bytes = std::min(chunk_bytes, size - at);
    auto& next = arriving[(at - in_first) / chunk_bytes % 2];
    next.emplace(Arriving{RequestBatch(group_), {staging_.acquire(bytes), 0, bytes}});
    next->batch.receive(next->part, from, tag_);
  };
  expect(in_first);
  expect(in_first + chunk_bytes);
  for (std::size_t at = in_first; at < size; at += chunk_bytes) {
    auto& next = arriving[(at - in_first) / chunk_bytes % 2];
    next->batch.wait(context, std::nullopt, here);
    std::memcpy(static_cast<std::byte*>(out) + at, next->part.data(), next->part.bytes);
    next.reset();
    expect(at + 2 * chunk_bytes);
  }
  FlightLane::end_message(message, now_ns());
}

}  // namespace tnt
