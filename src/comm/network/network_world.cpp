#include "comm/network/network_world.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/clock.hpp"

namespace tnt {
namespace {

constexpr int control_tag = 0;
constexpr int lanes = 4;                                // tags of a communicator
constexpr std::int64_t poll_every_ns = 1'000'000;       // what nobody waits for costs little
constexpr std::int64_t others_may_say_ns = 60'000'000;  // some ten times as long as a waiting rank needs to hear of an ending
constexpr std::int64_t arrival_ns = 100'000'000;  // for data that overtook nothing, but has other ways than a rank's last note
constexpr double leaving_seconds = 2.0;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

struct NetworkWorld::Note {
  enum Kind : std::uint32_t { none, ended, left };
  Kind kind = none;
  tnt_status_t status = TNT_SUCCESS;
  std::array<char, 2040> message{};
};

NetworkWorld::NetworkWorld(std::shared_ptr<Network> network)
    : network_(std::move(network)), nodes_(static_cast<std::size_t>(ranks())), controls_(static_cast<std::size_t>(ranks())) {
  std::iota(nodes_.begin(), nodes_.end(), 0);
  for (int other = 0; other < ranks(); ++other) {
    if (other != rank()) expect(other);
  }
}

NetworkWorld::~NetworkWorld() {
  const std::scoped_lock lock(mutex_);
  Note note;
  note.kind = Note::left;
  tell_all(note);
  const Deadline deadline(leaving_seconds);
  try {
    std::erase_if(told_, [](const auto& transfer) { return transfer->test(); });
    while (!told_.empty() && !deadline.passed()) {
      nap();
      std::erase_if(told_, [](const auto& transfer) { return transfer->test(); });
    }
  } catch (const Error&) {  // a network that fails now has nobody to fail for
  }
}

void NetworkWorld::expect(int rank) {
  Control& control = controls_[static_cast<std::size_t>(rank)];
  control.note = std::make_shared<Note>();
  control.transfer = network_->irecv(control.note.get(), sizeof(Note), rank, control_tag, control.note);
}

void NetworkWorld::tell_all(const Note& note) noexcept {
  const std::size_t length = offsetof(Note, message) + std::strlen(note.message.data()) + 1;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    try {
      const auto copy = std::make_shared<Note>(note);
      told_.push_back(network_->isend(copy.get(), length, other, control_tag, copy));
    } catch (const std::exception&) {  // that one cannot be told; the others can
    }
  }
}

std::uint64_t NetworkWorld::allocate_context() noexcept {
  return 4 * (++contexts_ * static_cast<std::uint64_t>(ranks()) + static_cast<std::uint64_t>(rank()));
}

int NetworkWorld::tag(std::uint64_t context, int lane) const {
  const std::uint64_t tag = 1 + context * lanes + static_cast<std::uint64_t>(lane);
  if (tag > static_cast<std::uint64_t>(network_->last_tag())) {
    fail(TNT_SYSTEM, "{} has no tags left: too many communicators were made", network_->name());
  }
  return static_cast<int>(tag);
}

void NetworkWorld::poll() {
  for (int other = 0; other < ranks(); ++other) {
    Control& control = controls_[static_cast<std::size_t>(other)];
    while (control.transfer && control.transfer->test()) {
      const auto note = control.note;
      control.transfer.reset();
      if (note->kind == Note::left) {
        control.left_ns = now_ns();
        continue;
      }
      if (messages_.empty()) first_message_ns_ = now_ns();
      messages_.emplace(other, Error(note->status, note->message.data()));
      ending_ = true;
      expect(other);
    }
  }
  std::erase_if(told_, [](const auto& transfer) { return transfer->test(); });
  polled_ns_ = now_ns();
}

void NetworkWorld::abort(tnt_status_t status, const std::string& message) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    poll();
    if (ending_) return;
    Note note;
    note.kind = Note::ended;
    note.status = status;
    std::memcpy(note.message.data(), message.data(), std::min(message.size(), note.message.size() - 1));
    first_message_ns_ = now_ns();
    messages_.emplace(rank(), Error(status, note.message.data()));
    ending_ = true;
    tell_all(note);
  } catch (const std::exception&) {  // the network itself has failed: the others find out for themselves
  }
}

void NetworkWorld::throw_if_ended() {
  if (!ending_ && now_ns() - polled_ns_ < poll_every_ns) return;
  std::unique_lock lock(mutex_);
  if (decided_) throw Error(*decided_);
  poll();
  if (!ending_) return;
  while (!decided_ && now_ns() - first_message_ns_ < others_may_say_ns) {
    lock.unlock();
    nap();
    lock.lock();
    if (!decided_) poll();
  }
  if (!decided_) decided_ = messages_.begin()->second;
  throw Error(*decided_);
}

std::optional<Error> NetworkWorld::ending() noexcept {
  try {
    throw_if_ended();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

bool NetworkWorld::left(int rank) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t since = controls_[static_cast<std::size_t>(rank)].left_ns;
  return since != 0 && now_ns() - since > arrival_ns;
}

}  // namespace tnt
