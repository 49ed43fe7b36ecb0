#include "launch/rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/error_messages.hpp"
#include "launch/rendezvous_lines.hpp"

namespace tnt {
namespace {

constexpr double request_timeout = 2.0;    // seconds for a connected process to send its request
constexpr std::size_t max_requests = 256;  // connections that have not sent theirs yet; the oldest makes room for another
constexpr double latecomer_timeout = 2.0;  // seconds for a late rank to connect and receive the error
constexpr double grace_for_rank_0 = 5.0;   // seconds after the deadline for rank 0's message, which names the missing ranks

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Address abstract_address(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(result.address.sun_path)) {
    fail(TNT_INVALID_ARGUMENT, "TNT_INTERNAL_RENDEZVOUS={}: longer than a socket name may be", name);
  }
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

FileDescriptor stream_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) fail_errno("cannot make a socket to find the other ranks");
  return socket;
}

int milliseconds_left(const Deadline& deadline) {
  const std::int64_t left = (deadline.end_ns() - now_ns()) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

// Returns the bytes before the newline; nothing at end of file, on an error or after the deadline. A descriptor that comes with
// them is moved to *received.
std::optional<std::string> read_line(const FileDescriptor& socket, const Deadline& deadline, FileDescriptor* received) {
  LineReader reader;
  while (true) {
    pollfd wait{socket.get(), POLLIN, 0};
    if (::poll(&wait, 1, milliseconds_left(deadline)) < 0 && errno != EINTR) return std::nullopt;
    if (wait.revents == 0) {
      if (deadline.passed()) return std::nullopt;
      continue;
    }
    const auto state = reader.read(socket, received);
    if (state == LineReader::State::complete) return reader.line();
    if (state == LineReader::State::failed) return std::nullopt;
  }
}

// Ignores errors: a peer that has gone cannot be told, and will be noticed elsewhere.
void send_line(const FileDescriptor& socket, const std::string& line, const FileDescriptor* descriptor = nullptr) {
  std::string text = line + "\n";
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  (void)::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
}

bool same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

// Rank 0's side: the ranks that have joined, and the error if a rank cannot.
class RendezvousServer {
 public:
  RendezvousServer(const Settings& settings, const FileDescriptor& segment) : settings_(settings), segment_(segment) {}

  void run(const std::function<void()>& prepare) {
    listen();
    const Deadline deadline(settings_.join_seconds());
    while (joined_.size() + 1 < static_cast<std::size_t>(settings_.ranks)) {
      if (deadline.passed()) fail(TNT_TIMEOUT, "{} did not join within {} s{}", missing(), deadline.seconds(), strangers());
      wait(deadline);
    }
    if (prepare) prepare();
    for (const auto& [rank, socket] : joined_) send_line(socket, "ok", &segment_);
  }

  // Reports an error to all ranks that have joined, and for a moment to ranks that are about to connect, which would otherwise
  // wait for a rank 0 that is gone. A rank that gets the error may try again, so nobody is told before the listener is closed,
  // unless a latecomer would be missed.
  void report_error(const Error& error) {
    const std::string line = error_line(error.status(), error.what());
    if (error.status() != TNT_MISMATCH && error.status() != TNT_PEER_LOST) return report_to_joined(line);
    const Deadline deadline(latecomer_timeout);
    while (may_receive_more() && !deadline.passed()) {
      report_to_joined(line);
      if (auto request = next_request(deadline); request && request->verb == "join") {
        joined_.insert_or_assign(request->rank, std::move(request->socket));
        informed_.erase(request->rank);
      }
    }
    report_to_joined(line);
  }

 private:
  // A connection of which the request has not arrived yet. It costs nobody else time, however long it stays silent.
  struct Connection {
    FileDescriptor socket;
    Deadline deadline{request_timeout};
    LineReader request;
  };

  struct PeerRequest : RendezvousRequest {
    FileDescriptor socket;
  };

  [[nodiscard]] bool may_receive_more() const {
    return joined_.size() + exited_.size() + 1 < static_cast<std::size_t>(settings_.ranks);
  }

  void report_to_joined(const std::string& line) {
    if (!may_receive_more()) listener_ = FileDescriptor();
    for (const auto& [rank, socket] : joined_) {
      if (informed_.insert(rank).second) send_line(socket, line);
    }
  }

  void listen() {
    const Address address = abstract_address(settings_.rendezvous);
    listener_ = stream_socket();
    if (::bind(listener_.get(), address.get(), address.length) != 0) {
      fail_errno(
          fmt::format("rank 0 cannot listen on {} (is TNT_INTERNAL_RANK=0 set for two processes?)", settings_.rendezvous));
    }
    if (::listen(listener_.get(), settings_.ranks + 16) != 0) fail_errno("rank 0 cannot listen for the other ranks");
  }

  void wait(const Deadline& deadline) {
    auto request = next_request(deadline);
    if (request && request->verb == "exit") on_exit(*request);
    if (request && request->verb == "join") on_join(*request);
  }

  // Returns the next complete request; nothing if none came until something else happened, or until the deadline. Throws as
  // `receive` does.
  std::optional<PeerRequest> next_request(const Deadline& deadline) {
    if (requests_.empty()) receive(deadline);
    if (requests_.empty()) return std::nullopt;
    PeerRequest request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }

  // Waits until something happens, at most until the deadline, and reads from all connections that have sent something. Throws
  // TNT_PEER_LOST if a rank that had joined has gone and has not received an error.
  void receive(const Deadline& deadline) {
    std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) waits.push_back({connection.socket.get(), POLLIN, 0});
    std::vector<int> ranks;
    for (const auto& [rank, socket] : joined_) {
      if (informed_.contains(rank)) continue;
      waits.push_back({socket.get(), POLLIN, 0});  // a joined rank sends nothing more, so readable means gone
      ranks.push_back(rank);
    }
    int timeout = milliseconds_left(deadline);
    for (const Connection& connection : connections_) timeout = std::min(timeout, milliseconds_left(connection.deadline));
    (void)::poll(waits.data(), waits.size(), timeout);
    const std::size_t first_joined = 1 + connections_.size();
    for (std::size_t i = first_joined; i < waits.size(); ++i) {
      if (waits[i].revents != 0) fail(TNT_PEER_LOST, "rank {} ended before all ranks had joined", ranks[i - first_joined]);
    }
    std::vector<Connection> incomplete;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      auto state = LineReader::State::incomplete;
      if (waits[i + 1].revents != 0) state = connection.request.read(connection.socket);
      if (state == LineReader::State::complete) {
        if (auto request = parse(std::move(connection))) requests_.push_back(std::move(*request));
      } else if (state == LineReader::State::incomplete && !connection.deadline.passed()) {
        incomplete.push_back(std::move(connection));
      }
    }
    connections_ = std::move(incomplete);
    if (waits[0].revents != 0) accept();
  }

  void accept() {
    Connection connection;
    connection.socket = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.socket || !same_user(connection.socket)) return;
    if (connections_.size() == max_requests) connections_.erase(connections_.begin());
    connections_.push_back(std::move(connection));
  }

  // Returns nothing if the request is not one of a process of this job.
  std::optional<PeerRequest> parse(Connection connection) {
    std::optional<RendezvousRequest> read = parse_request(connection.request.line());
    if (!read) return std::nullopt;
    PeerRequest request{std::move(*read), std::move(connection.socket)};
    if (request.token != settings_.token) {
      refuse_token(request);
      return std::nullopt;
    }
    if (request.rank < 1 || request.rank >= settings_.ranks) {
      const std::string message = fmt::format("rank {} is not a rank of this job of {}", request.rank, settings_.ranks);
      send_line(request.socket, error_line(TNT_MISMATCH, message));
      return std::nullopt;
    }
    return request;
  }

  // The job goes on: the process may be of another one.
  void refuse_token(const PeerRequest& request) {
    refused_.insert(request.rank);
    send_line(request.socket,
              error_line(TNT_MISMATCH, fmt::format("rank {} has another token than rank 0: give all ranks the same "
                                                   "(TNT_INTERNAL_TOKEN, or tnt_init_options_t.token)",
                                                   request.rank)));
  }

  void on_exit(const PeerRequest& request) {
    if (joined_.contains(request.rank)) return;
    exited_.insert(request.rank);
    fail(TNT_PEER_LOST, "rank {} exited with code {} before it joined", request.rank, request.exit_code());
  }

  void on_join(PeerRequest& request) {
    const int rank = request.rank;
    const auto [ranks, version] = request.size_and_version();
    if (joined_.contains(rank)) {
      const std::string message = fmt::format("two processes claim to be rank {}", rank);
      send_line(request.socket, error_line(TNT_MISMATCH, message));
      fail(TNT_MISMATCH, "{}", message);
    }
    joined_.emplace(rank, std::move(request.socket));
    if (request.protocol != "1" || version != tnt_version()) {
      fail(TNT_MISMATCH, "rank {} runs Tarantella {}, rank 0 runs {}: install one version", rank, version, tnt_version());
    }
    if (ranks != settings_.ranks) {
      fail(TNT_MISMATCH, "rank {} was started for {} ranks, rank 0 for {}", rank, ranks, settings_.ranks);
    }
  }

  [[nodiscard]] std::string missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < settings_.ranks; ++rank) {
      if (!joined_.contains(rank)) ranks.push_back(rank);
    }
    return name_ranks(ranks);
  }

  // What is known of why they are missing.
  [[nodiscard]] std::string strangers() const {
    if (refused_.empty()) return "";
    return fmt::format("; a process with another token came as {}", name_ranks({refused_.begin(), refused_.end()}));
  }

  const Settings& settings_;
  const FileDescriptor& segment_;
  FileDescriptor listener_;
  std::vector<Connection> connections_;  // the oldest first
  std::deque<PeerRequest> requests_;     // have arrived and not been handled yet
  std::map<int, FileDescriptor> joined_;
  std::set<int> exited_;    // the launcher has reported that they will not come
  std::set<int> refused_;   // as which processes with another token came
  std::set<int> informed_;  // have received the error
};

FileDescriptor connect(const Settings& settings, const Deadline& deadline) {
  const Address address = abstract_address(settings.rendezvous);
  while (true) {
    FileDescriptor socket = stream_socket();
    if (::connect(socket.get(), address.get(), address.length) == 0) {
      if (same_user(socket)) return socket;
      fail(TNT_SYSTEM, "TNT_INTERNAL_RENDEZVOUS={} is in use by another user's process", settings.rendezvous);
    }
    if (deadline.passed()) fail(TNT_TIMEOUT, "rank 0 did not join within {} s", deadline.seconds());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void lead_rendezvous(const Settings& settings, const FileDescriptor& segment, const std::function<void()>& prepare) {
  check_token(settings.token);
  RendezvousServer server(settings, segment);
  try {
    server.run(prepare);
  } catch (const Error& error) {
    server.report_error(error);
    throw;
  }
}

FileDescriptor join_rendezvous(const Settings& settings) {
  check_token(settings.token);
  const FileDescriptor socket = connect(settings, Deadline(settings.join_seconds()));
  const Deadline deadline(settings.join_seconds() + grace_for_rank_0);
  send_line(socket, fmt::format("tarantella 1 {} join {} {} {}", settings.token, settings.rank, settings.ranks, tnt_version()));
  FileDescriptor segment;
  const auto reply = read_line(socket, deadline, &segment);
  if (!reply && deadline.passed())
    fail(TNT_TIMEOUT, "rank 0 did not report within {} s that all ranks had joined", deadline.seconds());
  if (!reply) fail(TNT_PEER_LOST, "rank 0 ended, or refused this process, before all ranks had joined");
  throw_if_error(*reply);
  if (*reply != "ok" || !segment) fail(TNT_SYSTEM, "rank 0 answered '{}' instead of sending the shared segment", *reply);
  return segment;
}

}  // namespace tnt
