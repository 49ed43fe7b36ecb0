#include "support/fake_network.hpp"

#include <cstring>

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "common/error.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt::testing {
namespace {

constexpr std::size_t eager_bytes = 4096;
constexpr unsigned latest_ns = 300'000;

class FakeRequest final : public Request {
 public:
  FakeRequest(std::shared_ptr<FakeHub> hub, FakeHub::Place place, std::shared_ptr<FakeHub::State> state)
      : hub_(std::move(hub)), place_(place), state_(std::move(state)) {}
  ~FakeRequest() override { hub_->give_up(*state_); }
  [[nodiscard]] bool test() override { return hub_->test(place_, *state_); }

 private:
  std::shared_ptr<FakeHub> hub_;
  FakeHub::Place place_;
  std::shared_ptr<FakeHub::State> state_;
};

}  // namespace

std::shared_ptr<FakeHub::State> FakeHub::send(const Place& place, const void* data, std::size_t bytes,
                                              std::shared_ptr<void> memory) {
  const auto sender = std::make_shared<State>();
  const auto message = std::make_shared<State>();
  message->bytes = bytes;
  if (bytes <= eager_bytes) {
    message->copy = std::shared_ptr<std::byte[]>(new std::byte[bytes + 1]);
    if (bytes > 0) std::memcpy(message->copy.get(), data, bytes);
    message->data = message->copy.get();
    sender->done = true;
  } else {
    message->memory = std::move(memory);
    message->data = static_cast<std::byte*>(const_cast<void*>(data));  // NOLINT: only read
    message->sender = sender;
  }
  const std::scoped_lock lock(mutex_);
  ++messages_;
  const bool late = static_cast<int>(random_() % 100) < late_percent_;
  message->ready_ns = now_ns() + (late ? static_cast<std::int64_t>(random_() % latest_ns) : 0);
  channels_[place].sent.push_back(message);
  deliver(place);
  return sender;
}

std::shared_ptr<FakeHub::State> FakeHub::receive(const Place& place, void* data, std::size_t bytes,
                                                 std::shared_ptr<void> memory) {
  auto wanted = std::make_shared<State>();
  wanted->memory = std::move(memory);
  wanted->data = static_cast<std::byte*>(data);
  wanted->bytes = bytes;
  const std::scoped_lock lock(mutex_);
  channels_[place].wanted.push_back(wanted);
  deliver(place);
  return wanted;
}

bool FakeHub::test(const Place& place, State& state) {
  const std::scoped_lock lock(mutex_);
  if (!state.done) deliver(place);
  if (!state.error.empty()) throw Error(TNT_SYSTEM, state.error);
  return state.done;
}

std::size_t FakeHub::messages() {
  const std::scoped_lock lock(mutex_);
  return messages_;
}

void FakeHub::give_up(State& state) {
  const std::scoped_lock lock(mutex_);
  state.given_up = !state.done;
}

void FakeHub::close(int rank) {
  const std::scoped_lock lock(mutex_);
  const auto is_callers = [](const std::shared_ptr<State>& state) { return !state->memory && !state->copy; };
  for (auto& [place, channel] : channels_) {
    if (std::get<0>(place) == rank) std::erase_if(channel.sent, is_callers);
    if (std::get<1>(place) == rank) std::erase_if(channel.wanted, is_callers);
  }
}

// A message goes to a receive that names its sender, else to one for any sender.
void FakeHub::deliver(const Place& place) {
  const auto [from, to, tag] = place;
  auto& wanted_from_any = channels_[{any_rank, to, tag}].wanted;
  for (int sender = from == any_rank ? 0 : from; sender <= (from == any_rank ? ranks_ - 1 : from); ++sender) {
    const auto channel = channels_.find({sender, to, tag});
    if (channel == channels_.end()) continue;
    deliver(channel->second, channel->second.wanted);
    deliver(channel->second, wanted_from_any);
  }
}

void FakeHub::deliver(Channel& channel, std::deque<std::shared_ptr<State>>& receives) {
  while (!channel.sent.empty() && channel.sent.front()->ready_ns <= now_ns()) {
    while (!receives.empty() && receives.front()->given_up) receives.pop_front();
    if (receives.empty()) return;
    const auto message = channel.sent.front();
    const auto wanted = receives.front();
    channel.sent.pop_front();
    receives.pop_front();
    if (message->bytes > wanted->bytes) {
      wanted->error = fmt::format("a message of {} bytes in room for {}", message->bytes, wanted->bytes);
    } else if (message->bytes > 0) {
      std::memcpy(wanted->data, message->data, message->bytes);
    }
    wanted->done = true;
    wanted->memory.reset();
    if (message->sender) message->sender->done = true;
  }
}

std::unique_ptr<Request> FakeNetwork::isend(const void* data, std::size_t bytes, int to, int tag,
                                            std::shared_ptr<void> memory) {
  const FakeHub::Place place{rank_, to, tag};
  return std::make_unique<FakeRequest>(hub_, place, hub_->send(place, data, bytes, std::move(memory)));
}

std::unique_ptr<Request> FakeNetwork::irecv(void* data, std::size_t bytes, int from, int tag, std::shared_ptr<void> memory) {
  const FakeHub::Place place{from, rank_, tag};
  return std::make_unique<FakeRequest>(hub_, place, hub_->receive(place, data, bytes, std::move(memory)));
}

namespace {

constexpr int first_native_tag = 30'000;

// Everybody sends all of its data to everybody.
class FakeCollective final : public Request {
 public:
  using Finish = std::function<void(const std::vector<std::vector<std::byte>>& all)>;
  FakeCollective(FakeNetwork& network, int tag, const void* in, std::size_t bytes, Finish finish)
      : all_(static_cast<std::size_t>(network.size()), std::vector<std::byte>(bytes)), finish_(std::move(finish)) {
    const auto self = static_cast<std::size_t>(network.rank());
    if (bytes > 0) std::memcpy(all_[self].data(), in, bytes);
    for (int other = 0; other < network.size(); ++other) {
      if (other == network.rank()) continue;
      requests_.push_back(network.irecv(all_[static_cast<std::size_t>(other)].data(), bytes, other, tag, nullptr));
      requests_.push_back(network.isend(all_[self].data(), bytes, other, tag, nullptr));
    }
  }
  [[nodiscard]] bool test() override {
    std::erase_if(requests_, [](const auto& request) { return request->test(); });
    if (!requests_.empty()) return false;
    if (finish_) std::exchange(finish_, nullptr)(all_);
    return true;
  }

 private:
  std::vector<std::vector<std::byte>> all_;
  std::vector<std::unique_ptr<Request>> requests_;
  Finish finish_;
};

class FakeCollectives final : public NativeCollectives {
 public:
  FakeCollectives(std::shared_ptr<FakeHub> hub, int rank, int tag) : hub_(hub), network_(std::move(hub), rank), tag_(tag) {}

  [[nodiscard]] bool reduces(tnt_dtype_t dtype, tnt_op_t op) const noexcept override {
    return op != TNT_AVG && dtype_size(dtype) != 2;
  }
  [[nodiscard]] std::unique_ptr<Request> all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                    tnt_op_t op, std::shared_ptr<void> /*memory*/) override {
    return std::make_unique<FakeCollective>(network_, tag_, in, count * dtype_size(dtype),
                                            [=](const auto& all) { chain(all, 0, out, count, dtype, op); });
  }
  [[nodiscard]] std::unique_ptr<Request> reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                        tnt_op_t op, std::shared_ptr<void> /*memory*/) override {
    const std::size_t block = count * dtype_size(dtype);
    const auto ranks = static_cast<std::size_t>(network_.size());
    const std::size_t offset = static_cast<std::size_t>(network_.rank()) * block;
    return std::make_unique<FakeCollective>(network_, tag_, in, ranks * block,
                                            [=](const auto& all) { chain(all, offset, out, count, dtype, op); });
  }
  [[nodiscard]] std::unique_ptr<Request> all_gather(const void* in, void* out, std::size_t bytes,
                                                    std::shared_ptr<void> /*memory*/) override {
    return std::make_unique<FakeCollective>(network_, tag_, in, bytes, [=](const auto& all) {
      for (std::size_t rank = 0; rank < all.size() && bytes > 0; ++rank) {
        std::memcpy(static_cast<std::byte*>(out) + rank * bytes, all[rank].data(), bytes);
      }
    });
  }
  [[nodiscard]] std::unique_ptr<Request> duplicate(std::shared_ptr<NativeCollectives>& copy) override {
    copy = std::make_shared<FakeCollectives>(hub_, network_.rank(), tag_ + 1 + copies_++);
    return std::make_unique<FakeCollective>(network_, tag_, nullptr, 0, nullptr);
  }

 private:
  static void chain(const std::vector<std::vector<std::byte>>& all, std::size_t offset, void* out, std::size_t count,
                    tnt_dtype_t dtype, tnt_op_t op) {
    if (count == 0) return;
    std::vector<std::byte> sum(all.back().begin() + static_cast<std::ptrdiff_t>(offset), all.back().end());
    for (std::size_t rank = all.size() - 1; rank-- > 0;) {
      const void* both[] = {sum.data(), all[rank].data() + offset};
      reduce(sum.data(), both, count, dtype, op);
    }
    std::memcpy(out, sum.data(), count * dtype_size(dtype));
  }

  std::shared_ptr<FakeHub> hub_;
  FakeNetwork network_;
  int tag_;
  int copies_ = 0;
};

}  // namespace

std::shared_ptr<NativeCollectives> FakeNetwork::native_collectives() {
  return std::make_shared<FakeCollectives>(hub_, rank_, first_native_tag);
}

}  // namespace tnt::testing
