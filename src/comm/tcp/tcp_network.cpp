#include "comm/tcp/tcp_network.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "comm/tcp/tcp_connection.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr double closing_seconds = 1.0;

using TransferPtr = std::shared_ptr<TcpTransfer>;

void deliver(const TcpTransfer& message, TcpTransfer& receive) {
  if (message.bytes > 0 && !receive.cancelled) std::memcpy(receive.data, message.data, message.bytes);
  receive.done = true;
}

}  // namespace

// The connections, the messages that nobody has asked for yet, and the receives that wait. Thread-safe.
class TcpNetwork::Engine final : private TcpReceiver {
 public:
  Engine(int rank, std::vector<FileDescriptor> sockets);
  void close();

  TransferPtr send(TransferPtr message, int to, int tag);
  TransferPtr receive(TransferPtr wanted, int from, int tag);
  void cancel(TcpTransfer& transfer);
  [[nodiscard]] bool test(const TcpTransfer& transfer);
  [[nodiscard]] bool lost(int rank);
  [[nodiscard]] std::string host_of(int rank);

 private:
  using Place = std::pair<int, int>;  // sender (or any_rank) and tag
  [[nodiscard]] TransferPtr begin(int from, int tag, std::size_t bytes) override;
  void complete(TcpTransfer& transfer) override;
  [[nodiscard]] TransferPtr take_waiting(const Place& place);
  [[nodiscard]] TransferPtr take_early(int from, int tag);
  void progress();

  int rank_;
  FileDescriptor epoll_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // none to this rank itself
  std::map<Place, std::deque<TransferPtr>> early_;           // messages before their receives
  std::map<Place, std::deque<TransferPtr>> waiting_;         // receives before their messages
};

TcpNetwork::Engine::Engine(int rank, std::vector<FileDescriptor> sockets)
    : rank_(rank), epoll_(::epoll_create1(EPOLL_CLOEXEC)), connections_(sockets.size()) {
  if (!epoll_) fail_errno("cannot watch TCP connections");
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    connections_[peer] = std::make_unique<TcpConnection>(std::move(sockets[peer]), static_cast<int>(peer));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = peer;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connections_[peer]->descriptor(), &event) != 0) {
      fail_errno("cannot watch TCP connections");
    }
  }
}

void TcpNetwork::Engine::close() {
  const std::scoped_lock lock(mutex_);
  const auto all = [&](auto&& what) {
    bool any = false;
    for (const auto& connection : connections_) any = (connection && what(*connection)) || any;
    return any;
  };
  const auto wait_while = [&](auto&& busy) {
    const Deadline deadline(closing_seconds);
    while (all(busy) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  wait_while([](TcpConnection& one) {
    one.flush();
    return one.has_unsent();
  });
  (void)all([](TcpConnection& one) {
    one.end_sending();
    return false;
  });
  wait_while([](TcpConnection& one) { return one.closing(); });
  for (auto& connection : connections_) connection.reset();
}

// Returns nothing if no receive waits.
TransferPtr TcpNetwork::Engine::take_waiting(const Place& place) {
  const auto found = waiting_.find(place);
  if (found == waiting_.end()) return nullptr;
  TransferPtr wanted;
  while (!wanted && !found->second.empty()) {
    if (!found->second.front()->cancelled) wanted = found->second.front();
    found->second.pop_front();
  }
  if (found->second.empty()) waiting_.erase(found);
  return wanted;
}

// A message goes to a receive that names its sender, else to one for any sender, else it waits for one.
TransferPtr TcpNetwork::Engine::begin(int from, int tag, std::size_t bytes) {
  TransferPtr wanted = take_waiting({from, tag});
  if (!wanted) wanted = take_waiting({any_rank, tag});
  if (wanted) {
    if (bytes > wanted->bytes) fail(TNT_SYSTEM, "rank {} sent {} bytes for a receive of {}", from, bytes, wanted->bytes);
    return wanted;
  }
  if (bytes > max_message_bytes) fail(TNT_SYSTEM, "the TCP connection to rank {} brought data of something else", from);
  auto early = std::make_shared<TcpTransfer>();
  auto memory = std::shared_ptr<std::byte[]>(new std::byte[bytes + 1]);
  early->data = memory.get();
  early->memory = std::move(memory);
  early->bytes = bytes;
  early_[{from, tag}].push_back(early);
  return early;
}

void TcpNetwork::Engine::complete(TcpTransfer& transfer) {
  if (transfer.claimed_by) deliver(transfer, *transfer.claimed_by);
  transfer.done = true;
}

TransferPtr TcpNetwork::Engine::take_early(int from, int tag) {
  auto found = early_.find({from, tag});
  for (int sender = 0; from == any_rank && found == early_.end() && sender < static_cast<int>(connections_.size()); ++sender) {
    found = early_.find({sender, tag});
  }
  if (found == early_.end()) return nullptr;
  TransferPtr message = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) early_.erase(found);
  return message;
}

TransferPtr TcpNetwork::Engine::send(TransferPtr message, int to, int tag) {
  const std::scoped_lock lock(mutex_);
  if (to != rank_) {
    connections_[static_cast<std::size_t>(to)]->send(message, tag);
    return message;
  }
  const TransferPtr own = begin(rank_, tag, message->bytes);
  if (message->bytes > 0) std::memcpy(own->data, message->data, message->bytes);
  complete(*own);
  message->done = true;
  return message;
}

TransferPtr TcpNetwork::Engine::receive(TransferPtr wanted, int from, int tag) {
  const std::scoped_lock lock(mutex_);
  const TransferPtr early = take_early(from, tag);
  if (!early) {
    waiting_[{from, tag}].push_back(wanted);
  } else if (early->bytes > wanted->bytes) {
    fail(TNT_SYSTEM, "rank {} sent {} bytes for a receive of {}", from, early->bytes, wanted->bytes);
  } else if (early->done) {
    deliver(*early, *wanted);
  } else {
    early->claimed_by = wanted;
  }
  return wanted;
}

// Its memory lives as long as bytes may arrive in it, because the connection keeps the transfer.
void TcpNetwork::Engine::cancel(TcpTransfer& transfer) {
  const std::scoped_lock lock(mutex_);
  transfer.cancelled = true;
}

bool TcpNetwork::Engine::test(const TcpTransfer& transfer) {
  if (transfer.done) return true;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) progress();  // else another thread is at it
  return transfer.done;
}

bool TcpNetwork::Engine::lost(int rank) {
  const std::scoped_lock lock(mutex_);
  progress();
  const auto& connection = connections_[static_cast<std::size_t>(rank)];
  return connection && connection->ended();
}

std::string TcpNetwork::Engine::host_of(int rank) {
  const std::scoped_lock lock(mutex_);
  const auto& connection = connections_[static_cast<std::size_t>(rank)];
  return connection ? peer_host(connection->descriptor()) : "";
}

void TcpNetwork::Engine::progress() {
  for (const auto& connection : connections_) {
    if (connection && connection->has_unsent()) connection->flush();
  }
  std::array<epoll_event, 64> events;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by the system
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    TcpConnection& connection = *connections_[events[static_cast<std::size_t>(i)].data.u64];
    connection.receive(*this);
    if (connection.ended()) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.descriptor(), nullptr);
  }
}

class TcpNetwork::TcpRequest final : public Request {
 public:
  TcpRequest(std::shared_ptr<Engine> engine, TransferPtr transfer)
      : engine_(std::move(engine)), transfer_(std::move(transfer)) {}
  ~TcpRequest() override {
    if (!transfer_->done) engine_->cancel(*transfer_);
  }
  [[nodiscard]] bool test() override { return engine_->test(*transfer_); }

 private:
  std::shared_ptr<Engine> engine_;
  TransferPtr transfer_;
};

namespace {

TransferPtr transfer_of(void* data, std::size_t bytes, std::shared_ptr<void> memory) {
  auto transfer = std::make_shared<TcpTransfer>();
  transfer->data = static_cast<std::byte*>(data);
  transfer->bytes = bytes;
  transfer->memory = std::move(memory);
  return transfer;
}

}  // namespace

TcpNetwork::TcpNetwork(int rank, std::vector<FileDescriptor> sockets)
    : rank_(rank), size_(static_cast<int>(sockets.size())), engine_(std::make_shared<Engine>(rank, std::move(sockets))) {}

TcpNetwork::~TcpNetwork() { engine_->close(); }

int TcpNetwork::max_tag() const noexcept { return std::numeric_limits<int>::max(); }

std::unique_ptr<Request> TcpNetwork::isend(const void* data, std::size_t bytes, int to, int tag, std::shared_ptr<void> memory) {
  auto message = transfer_of(const_cast<void*>(data), bytes, std::move(memory));  // NOLINT: a message is only read
  return std::make_unique<TcpRequest>(engine_, engine_->send(std::move(message), to, tag));
}

std::unique_ptr<Request> TcpNetwork::irecv(void* data, std::size_t bytes, int from, int tag, std::shared_ptr<void> memory) {
  return std::make_unique<TcpRequest>(engine_, engine_->receive(transfer_of(data, bytes, std::move(memory)), from, tag));
}

bool TcpNetwork::lost(int rank) { return engine_->lost(rank); }

std::string TcpNetwork::host_of(int rank) { return engine_->host_of(rank); }

}  // namespace tnt
