#include "comm/network/messages/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/clock.hpp"

namespace tnt {
namespace {

constexpr int control_tag = 0;
constexpr std::int64_t poll_every_ns = 1'000'000;         // limits the cost of polling for messages that rarely come
constexpr std::int64_t error_agreement_ns = 240'000'000;  // a waiting rank polls every few milliseconds if it has a core
constexpr std::int64_t in_flight_ns =
    100'000'000;  // for data that was sent before a rank's last notice, but travels on another path
constexpr std::int64_t answer_ns = 1'000'000'000;  // for the answer of a rank that waits, on a core that others use too
constexpr double leave_timeout_seconds = 2.0;

void sleep_1ms(Network& network) { network.sleep(std::chrono::milliseconds(1)); }

}  // namespace

struct NetworkWorld::ControlMessage {
  enum Kind : std::uint32_t { none, aborted, left, roll_call, waits_there, waits_elsewhere };
  Kind kind = none;
  int sender = 0;
  tnt_status_t status = TNT_SUCCESS;
  WaitingCall call;  // of a roll call and its answers
  std::array<char, 2040> message{};
};

NetworkWorld::NetworkWorld(std::shared_ptr<Network> network, std::shared_ptr<FlightRecorder> recorder)
    : network_(std::move(network)),
      recorder_(std::move(recorder)),
      nodes_(static_cast<std::size_t>(ranks())),
      left_ns_(static_cast<std::size_t>(ranks())) {
  std::iota(nodes_.begin(), nodes_.end(), 0);
  if (ranks() > 1) post_receive();
}

NetworkWorld::~NetworkWorld() {
  const std::scoped_lock lock(mutex_);
  ControlMessage notice;
  notice.kind = ControlMessage::left;
  if (closed_) return;
  send_to_all(notice);
  const Deadline deadline(leave_timeout_seconds);
  try {
    std::erase_if(sent_notices_, [](const auto& request) { return request->test(); });
    while (!sent_notices_.empty() && !deadline.passed()) {
      sleep_1ms(*network_);
      std::erase_if(sent_notices_, [](const auto& request) { return request->test(); });
    }
  } catch (const Error&) {  // the network has failed, and nobody waits for this rank
  }
}

void NetworkWorld::post_receive() {
  incoming_ = std::make_shared<ControlMessage>();
  receive_ = network_->irecv(incoming_.get(), sizeof(ControlMessage), any_rank, control_tag, incoming_);
}

void NetworkWorld::send_to(int rank, const ControlMessage& notice) noexcept {
  const std::size_t length = offsetof(ControlMessage, message) + std::strlen(notice.message.data()) + 1;
  try {
    const auto copy = std::make_shared<ControlMessage>(notice);
    copy->sender = this->rank();
    sent_notices_.push_back(network_->isend(copy.get(), length, rank, control_tag, copy));
  } catch (const std::exception&) {  // this rank cannot be told; the others can
  }
}

void NetworkWorld::send_to_all(const ControlMessage& notice) noexcept {
  for (int other = 0; other < ranks(); ++other) {
    if (other != rank()) send_to(other, notice);
  }
}

std::uint64_t NetworkWorld::allocate_context() noexcept {
  return 3 * (++contexts_ * static_cast<std::uint64_t>(ranks()) + static_cast<std::uint64_t>(rank()));
}

int NetworkWorld::tag(std::uint64_t context, int kind) const {
  const std::uint64_t tag = 1 + context * tags_per_communicator + static_cast<std::uint64_t>(kind);
  if (tag > static_cast<std::uint64_t>(network_->max_tag())) {
    fail(TNT_SYSTEM, "{} has no tags left: too many communicators were made", network_->name());
  }
  return static_cast<int>(tag);
}

void NetworkWorld::poll() {
  if (closed_) return;
  while (receive_ && receive_->test()) {
    const auto notice = incoming_;
    post_receive();
    take(*notice);
  }
  std::erase_if(sent_notices_, [](const auto& request) { return request->test(); });
  polled_ns_ = now_ns();
}

void NetworkWorld::take(const ControlMessage& notice) {
  switch (notice.kind) {
    case ControlMessage::left: left_ns_[static_cast<std::size_t>(notice.sender)] = now_ns(); return;
    case ControlMessage::roll_call: {
      if (waits_.empty()) return;
      const bool there = std::find(waits_.begin(), waits_.end(), notice.call) != waits_.end();
      ControlMessage answer;
      answer.kind = there ? ControlMessage::waits_there : ControlMessage::waits_elsewhere;
      answer.call = notice.call;
      return send_to(notice.sender, answer);
    }
    case ControlMessage::waits_there:
    case ControlMessage::waits_elsewhere:
      if (const auto asked = answers_.find(notice.call); asked != answers_.end()) {
        asked->second[notice.sender] = notice.kind == ControlMessage::waits_there;
      }
      return;
    case ControlMessage::aborted:
      if (messages_.empty()) first_message_ns_ = now_ns();
      messages_.emplace(notice.sender, Error(notice.status, notice.message.data()));
      aborted_ = true;
      return;
    case ControlMessage::none: return;
  }
}

NetworkWorld::Waiting::Waiting(NetworkWorld& world, const WaitingCall& call) : world_(world), call_(call) {
  const std::scoped_lock lock(world_.mutex_);
  world_.waits_.push_back(call_);
}

NetworkWorld::Waiting::~Waiting() {
  const std::scoped_lock lock(world_.mutex_);
  world_.waits_.erase(std::find(world_.waits_.begin(), world_.waits_.end(), call_));
}

// The answers, by rank, that came in time: whether it waits in this call or in another one.
std::map<int, bool> NetworkWorld::ask(const WaitingCall& call, const std::vector<int>& ranks) {
  ControlMessage notice;
  notice.kind = ControlMessage::roll_call;
  notice.call = call;
  std::unique_lock lock(mutex_);
  answers_[call].clear();
  for (const int rank : ranks) send_to(rank, notice);
  for (const std::int64_t begin = now_ns();
       now_ns() - begin < answer_ns && answers_[call].size() < ranks.size() && !aborted_;) {
    lock.unlock();
    sleep_1ms(*network_);
    lock.lock();
    poll();
  }
  return std::move(answers_.extract(call).mapped());
}

std::vector<int> NetworkWorld::call_roll(const WaitingCall& call, const std::vector<int>& members,
                                         const std::vector<int>& others) {
  std::vector<int> asked(members);
  asked.insert(asked.end(), others.begin(), others.end());
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  std::erase(asked, rank());
  const std::map<int, bool> answers = ask(call, asked);
  std::vector<int> silent;
  std::vector<int> elsewhere;
  for (const int rank : asked) {
    const auto answer = answers.find(rank);
    if (answer == answers.end()) {
      silent.push_back(rank);
    } else if (!answer->second && std::find(members.begin(), members.end(), rank) != members.end()) {
      elsewhere.push_back(rank);
    }
  }
  return silent.empty() ? elsewhere : silent;
}

bool NetworkWorld::all_wait(const std::vector<int>& ranks) {
  WaitingCall nowhere{~std::uint64_t{0}, 0};
  {
    const std::scoped_lock lock(mutex_);
    nowhere.number = ++rolls_;
  }
  return ask(nowhere, ranks).size() == ranks.size();
}

void NetworkWorld::abort(tnt_status_t status, const std::string& message) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    poll();
    if (aborted_) return;
    ControlMessage notice;
    notice.kind = ControlMessage::aborted;
    notice.status = status;
    std::memcpy(notice.message.data(), message.data(), std::min(message.size(), notice.message.size() - 1));
    first_message_ns_ = now_ns();
    messages_.emplace(rank(), Error(status, notice.message.data()));
    aborted_ = true;
    send_to_all(notice);
  } catch (const std::exception&) {  // the network itself has failed: the other ranks find out on their own
  }
}

void NetworkWorld::close(const std::string& message) noexcept {
  abort(TNT_ABORTED, message);
  const Deadline deadline(leave_timeout_seconds);
  std::unique_lock lock(mutex_);
  try {
    for (poll(); !sent_notices_.empty() && !deadline.passed(); poll()) {  // the others must learn of the abort
      lock.unlock();
      sleep_1ms(*network_);
      lock.lock();
    }
  } catch (const std::exception&) {  // the network has failed
  }
  closed_ = true;
  network_->close();
}

void NetworkWorld::throw_if_aborted() {
  if (!aborted_ && now_ns() - polled_ns_ < poll_every_ns) return;
  std::unique_lock lock(mutex_);
  if (agreed_error_) throw Error(*agreed_error_);
  poll();
  if (!aborted_) return;
  while (!agreed_error_ && now_ns() - first_message_ns_ < error_agreement_ns) {
    lock.unlock();
    sleep_1ms(*network_);
    lock.lock();
    if (!agreed_error_) poll();
  }
  if (!agreed_error_) {  // other errors may follow from different calls: a message that is longer than its receive
    const auto is_mismatch = [](const auto& message) { return message.second.status() == TNT_MISMATCH; };
    const auto mismatch = std::find_if(messages_.begin(), messages_.end(), is_mismatch);
    agreed_error_ = mismatch == messages_.end() ? messages_.begin()->second : mismatch->second;
  }
  throw Error(*agreed_error_);
}

std::optional<Error> NetworkWorld::async_error() noexcept {
  try {
    throw_if_aborted();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

bool NetworkWorld::lost(int rank) {
  if (!network_->lost(rank)) return false;
  const std::scoped_lock lock(mutex_);
  poll();  // its last notice came before the end of its connection
  return left_ns_[static_cast<std::size_t>(rank)] == 0;
}

bool NetworkWorld::left(int rank) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t since = left_ns_[static_cast<std::size_t>(rank)];
  return since != 0 && now_ns() - since > in_flight_ns;
}

}  // namespace tnt
