#include "bootstrap/rendezvous_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "comm/error_messages.hpp"

namespace tnt {
namespace {

constexpr double request_timeout = 2.0;    // seconds for a connected process to send its request
constexpr std::size_t max_requests = 256;  // connections that have not sent theirs yet; the oldest makes room for another
constexpr double latecomer_timeout = 2.0;  // seconds for a late rank to connect and receive the error

}  // namespace

RendezvousServer::RendezvousServer(const Settings& settings, FileDescriptor listener, bool (*accepts)(const FileDescriptor&))
    : settings_(settings),
      expected_(static_cast<std::size_t>(settings.ranks - settings.rank - 1)),
      listener_(std::move(listener)),
      accepts_(accepts) {}

std::map<int, RendezvousServer::JoinedRank>& RendezvousServer::wait_for_all(const std::function<void()>& check) {
  const Deadline deadline(settings_.join_seconds());
  while (joined_.size() < expected_) {
    if (check) check();
    if (deadline.passed()) fail(TNT_TIMEOUT, "{} did not join within {} s{}", missing(), deadline.seconds(), strangers());
    auto request = next_request(deadline);
    if (request && request->verb == "exit") on_exit(*request);
    if (request && request->verb == "join") on_join(*request);
  }
  return joined_;
}

void RendezvousServer::report_error(const Error& error) {
  const std::string line = error_line(error.status(), error.what());
  if (error.status() != TNT_MISMATCH && error.status() != TNT_PEER_LOST) return report_to_joined(line);
  const Deadline deadline(latecomer_timeout);
  while (may_receive_more() && !deadline.passed()) {
    report_to_joined(line);
    if (auto request = next_request(deadline); request && request->verb == "join") {
      joined_.insert_or_assign(request->rank, JoinedRank{std::move(request->socket), ""});
      informed_.erase(request->rank);
    }
  }
  report_to_joined(line);
}

bool RendezvousServer::may_receive_more() const { return joined_.size() + exited_.size() < expected_; }

void RendezvousServer::report_to_joined(const std::string& line) {
  if (!may_receive_more()) listener_ = FileDescriptor();
  for (const auto& [rank, joined] : joined_) {
    if (informed_.insert(rank).second) send_line(joined.socket, line);
  }
}

// Returns the next complete request; nothing if none came until something else happened, or until the deadline. Throws as
// `receive` does.
std::optional<RendezvousServer::PeerRequest> RendezvousServer::next_request(const Deadline& deadline) {
  if (requests_.empty()) receive(deadline);
  if (requests_.empty()) return std::nullopt;
  PeerRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

// Waits until something happens, at most until the deadline, and reads from all connections that have sent something. Throws
// TNT_PEER_LOST if a rank that had joined has gone and has not received an error.
void RendezvousServer::receive(const Deadline& deadline) {
  std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) waits.push_back({connection.socket.get(), POLLIN, 0});
  std::vector<int> ranks;
  for (const auto& [rank, joined] : joined_) {
    if (informed_.contains(rank)) continue;
    waits.push_back({joined.socket.get(), POLLIN, 0});  // a joined rank sends nothing more, so readable means gone
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

void RendezvousServer::accept() {
  Connection connection{{}, Deadline(request_timeout), LineReader()};
  connection.socket = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.socket || !accepts_(connection.socket)) return;
  if (connections_.size() == max_requests) connections_.erase(connections_.begin());
  connections_.push_back(std::move(connection));
}

// Returns nothing if the request is not one of a process of this job.
std::optional<RendezvousServer::PeerRequest> RendezvousServer::parse(Connection connection) {
  std::optional<RendezvousRequest> read = parse_request(connection.request.line());
  if (!read) return std::nullopt;
  PeerRequest request{std::move(*read), std::move(connection.socket)};
  if (request.token != settings_.token) {
    refuse_token(request);
    return std::nullopt;
  }
  if (request.rank <= settings_.rank || request.rank >= settings_.ranks) {
    const std::string message = fmt::format("rank {} is not a rank of this job of {}", request.rank, settings_.ranks);
    send_line(request.socket, error_line(TNT_MISMATCH, message));
    return std::nullopt;
  }
  return request;
}

// The job goes on: the process may be of another one.
void RendezvousServer::refuse_token(const PeerRequest& request) {
  refused_.insert(request.rank);
  send_line(request.socket,
            error_line(TNT_MISMATCH, fmt::format("rank {} has another token than rank 0: give all ranks the same "
                                                 "(TNT_TOKEN, or tnt_init_options_t.token)",
                                                 request.rank)));
}

void RendezvousServer::on_exit(const PeerRequest& request) {
  if (joined_.contains(request.rank)) return;
  exited_.insert(request.rank);
  fail(TNT_PEER_LOST, "rank {} exited with code {} before it joined", request.rank, request.exit_code());
}

void RendezvousServer::on_join(PeerRequest& request) {
  const int rank = request.rank;
  auto [ranks, version, port] = request.join();
  if (joined_.contains(rank)) {
    const std::string message = fmt::format("two processes claim to be rank {}", rank);
    send_line(request.socket, error_line(TNT_MISMATCH, message));
    fail(TNT_MISMATCH, "{}", message);
  }
  joined_.emplace(rank, JoinedRank{std::move(request.socket), std::move(port)});
  if (request.protocol != "1" || version != tnt_version()) {
    fail(TNT_MISMATCH, "rank {} runs Tarantella {}, rank 0 runs {}: install one version", rank, version, tnt_version());
  }
  if (ranks != settings_.ranks) {
    fail(TNT_MISMATCH, "rank {} was started for {} ranks, rank 0 for {}", rank, ranks, settings_.ranks);
  }
}

std::string RendezvousServer::missing() const {
  std::vector<int> ranks;
  for (int rank = settings_.rank + 1; rank < settings_.ranks; ++rank) {
    if (!joined_.contains(rank)) ranks.push_back(rank);
  }
  return name_ranks(ranks);
}

// A hint why they are missing, if there is one.
std::string RendezvousServer::strangers() const {
  if (refused_.empty()) return "";
  return fmt::format("; a process with another token came as {}", name_ranks({refused_.begin(), refused_.end()}));
}

}  // namespace tnt
