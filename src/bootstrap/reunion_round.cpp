#include "bootstrap/reunion_round.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "bootstrap/local_socket.hpp"
#include "comm/error_messages.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr int look_ms = 20;                               // for connections that have to be begun
constexpr std::int64_t before_asking_ns = 200'000'000;    // a rank above this one comes by itself, or it has ended
constexpr std::int64_t between_attempts_ns = 50'000'000;  // to connect
constexpr std::int64_t grace_ns = 2'000'000'000;          // after the deadline for the decision of a rank that takes part
constexpr std::size_t max_strangers = 256;                // the oldest makes room for another
constexpr std::size_t max_line = std::size_t{1} << 20;    // bytes, of a decision

std::string gone_on_line() {
  return error_line(TNT_TIMEOUT,
                    "this rank came to the shrink of its communicator after the deadline: the others go on without it");
}

}  // namespace

struct ReunionRound::Peer {
  int rank = 0;
  bool ended = false;        // its process, or its part in the communicator
  Connection to;             // to its listener
  bool connected = false;    // `to` is, and has said who this rank is
  bool takes_part = false;   // as it has answered there
  Connection from;           // that it has begun, and has said there who it is
  std::int64_t next_ns = 0;  // when to connect again

  [[nodiscard]] bool came() const noexcept { return static_cast<bool>(from.socket); }
};

ReunionRound::ReunionRound(const ReunionPlaces& places, const std::vector<int>& members, const Deadline& deadline)
    : places_(places), deadline_(deadline), begin_ns_(now_ns()), end_ns_(deadline.end_ns()), peers_(members.size()) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].rank = members[i];
    if (members[i] == places.rank) self_ = i;
  }
}

ReunionRound::~ReunionRound() = default;

std::optional<ReunionRound::Met> ReunionRound::run() {
  while (!decision_) {
    step();
    if (!decision_ && leads()) decide();
  }
  const Deadline deadline(deadline_.seconds());
  while (!broken_ && !all_are_ready()) {
    if (deadline.passed())
      fail(TNT_TIMEOUT, "a rank that had come to the shrink did not go on within {} s", deadline.seconds());
    step();
  }
  if (!broken_) return take_sockets();
  if (decision_->others_ended) return std::nullopt;
  fail(TNT_PEER_LOST, "a rank was lost while more than half of the ranks met; the others may be alive and do the same");
}

// Waits until something happens, for a moment at most.
void ReunionRound::step() {
  for (Peer& peer : peers_) connect(peer);
  std::vector<pollfd> waits{{places_.listener.get(), POLLIN, 0}};
  for (const Connection& stranger : strangers_) waits.push_back({stranger.socket.get(), POLLIN, 0});
  // what follows after a ready rank's line is for the network; poll ignores -1
  const auto events = [](const Connection& one) -> short { return one.ready.empty() ? POLLIN : POLLRDHUP; };
  for (const Peer& peer : peers_) {
    waits.push_back({peer.to.socket.get(), peer.connected ? events(peer.to) : short{POLLOUT}, 0});
    waits.push_back({peer.from.socket.get(), events(peer.from), 0});
  }
  (void)::poll(waits.data(), waits.size(), look_ms);
  auto seen = waits.begin();
  const bool someone_comes = (seen++)->revents != 0;
  for (Connection& stranger : std::exchange(strangers_, {})) {
    const bool speaks = (seen++)->revents != 0;
    const auto state = speaks ? stranger.reader.read(stranger.socket) : LineReader::State::incomplete;
    if (state == LineReader::State::complete) {
      greet(std::move(stranger));
    } else if (state == LineReader::State::incomplete) {
      strangers_.push_back(std::move(stranger));
    }
  }
  for (Peer& peer : peers_) {
    if ((seen++)->revents != 0) peer.connected ? read(peer, peer.to) : finish_connecting(peer);
    if ((seen++)->revents != 0) read(peer, peer.from);
  }
  if (someone_comes) accept();
}

void ReunionRound::connect(Peer& peer) {
  const std::int64_t now = now_ns();
  if (peer.rank == places_.rank || peer.ended || peer.to.socket || now < peer.next_ns) return;
  if (peer.rank > places_.rank && (peer.came() || now < begin_ns_ + before_asking_ns)) return;
  peer.to.reader = LineReader(max_line);
  peer.to.socket = begin_to_connect(places_.addresses[static_cast<std::size_t>(peer.rank)]);
  if (!peer.to.socket) note_failure(peer, errno);
}

void ReunionRound::note_failure(Peer& peer, int error) {
  peer.to = Connection();
  peer.next_ns = now_ns() + between_attempts_ns;
  peer.ended = error == ECONNREFUSED;
  if (peer.ended && is_member(peer)) broken_ = true;
}

void ReunionRound::finish_connecting(Peer& peer) {
  if (const int error = connect_error(peer.to.socket); error != 0) return note_failure(peer, error);
  const double seconds = static_cast<double>(end_ns_ - now_ns()) / 1e9;
  send_line(peer.to.socket, fmt::format("tarantella 1 {} meet {} {}", places_.token, places_.rank, seconds));
  peer.connected = true;
}

void ReunionRound::accept() {
  Connection stranger;
  stranger.socket = FileDescriptor(::accept4(places_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!stranger.socket) return;
  if (strangers_.size() == max_strangers) strangers_.erase(strangers_.begin());
  strangers_.push_back(std::move(stranger));
}

// Takes a rank of the communicator, which may come again after a round in which another was lost.
void ReunionRound::greet(Connection connection) {
  const auto request = parse_request(connection.reader.line());
  if (!request || request->token != places_.token || request->verb != "meet") return;
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& one) { return one.rank == request->rank; });
  if (peer == peers_.end()) return send_line(connection.socket, gone_on_line());
  char next = 0;
  if (::recv(connection.socket.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;  // it came earlier, and has gone
  double seconds = 0;
  std::istringstream(request->rest) >> seconds;
  end_ns_ = std::min(end_ns_, now_ns() + static_cast<std::int64_t>(seconds * 1e9));
  send_line(connection.socket, "here");
  if (peer->came() && is_member(*peer)) broken_ = true;
  connection.reader = LineReader(max_line);
  peer->from = std::move(connection);
}

void ReunionRound::read(Peer& peer, Connection& connection) {
  const auto state = connection.ready.empty() ? connection.reader.read(connection.socket) : LineReader::State::failed;
  if (state == LineReader::State::failed) return lose(peer, connection);
  if (state == LineReader::State::incomplete) return;
  std::istringstream words(std::exchange(connection.reader, LineReader(max_line)).line());
  std::string word;
  words >> word;
  if (word == "here") peer.takes_part = true;
  if (word == "ready") words >> connection.ready;
  if (word == "members" && !decision_) adopt(peer, words);
  throw_if_error(words.str());
}

void ReunionRound::adopt(const Peer& leader, std::istringstream& words) {
  Decision decision;
  words >> decision.name >> decision.others_ended;
  for (int rank = 0; words >> rank;) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].rank == rank) decision.members.push_back(i);
    }
  }
  if (decision.members.empty() || &peers_[decision.members.front()] != &leader) return;
  decision_ = std::move(decision);
}

void ReunionRound::lose(Peer& peer, Connection& connection) {
  if (is_member(peer) && &connection == &channel(peer)) broken_ = true;
  connection = Connection();
  if (&connection != &peer.to) return;
  peer.connected = peer.takes_part = false;
  peer.next_ns = now_ns() + between_attempts_ns;
}

// A rank below this one that takes part decides soon after the deadline; else it has been stopped since.
bool ReunionRound::leads() const {
  std::int64_t here = 0;
  bool alone = true;
  for (std::size_t i = 0; i < self_; ++i) {
    if (peers_[i].takes_part) ++here;
    alone = alone && peers_[i].ended;
  }
  return alone || now_ns() >= end_ns_ + here * grace_ns;
}

void ReunionRound::decide() {
  Decision decision{.name = random_name(), .others_ended = true, .members = {}};
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const bool comes = i == self_ || (i > self_ && peers_[i].came());
    if (comes) decision.members.push_back(i);
    if (!comes && !peers_[i].ended) decision.others_ended = false;
  }
  if (!decision.others_ended && now_ns() < end_ns_) return;
  const std::size_t twice = 2 * decision.members.size();
  if (!decision.others_ended && (twice < peers_.size() || (twice == peers_.size() && decision.members.front() != 0))) {
    give_up(decision.members);
  }
  std::string line = fmt::format("members {} {:d}", decision.name, decision.others_ended);
  for (const std::size_t i : decision.members) line += fmt::format(" {}", peers_[i].rank);
  decision_ = std::move(decision);
  tell_those_who_came(line);
}

void ReunionRound::give_up(const std::vector<std::size_t>& came) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (std::find(came.begin(), came.end(), i) == came.end()) missing.push_back(static_cast<int>(i));
  }
  const std::string message = fmt::format(
      "{} of the {} ranks came to the shrink of their communicator within {} s, and {} did not: these may be alive "
      "and go on without them, as more than half of the ranks may",
      came.size(), peers_.size(), deadline_.seconds(), name_ranks(missing));
  tell_those_who_came(error_line(TNT_TIMEOUT, message));
  fail(TNT_TIMEOUT, "{}", message);
}

void ReunionRound::tell_those_who_came(const std::string& line) {
  for (const Peer& peer : peers_) {
    if (peer.rank > places_.rank && peer.came()) send_line(peer.from.socket, line);
  }
}

bool ReunionRound::is_member(const Peer& peer) const {
  return decision_ &&
         std::any_of(decision_->members.begin(), decision_->members.end(), [&](std::size_t i) { return &peers_[i] == &peer; });
}

// The connection to a member that is to be used from now on.
ReunionRound::Connection& ReunionRound::channel(Peer& peer) const { return peer.rank < places_.rank ? peer.to : peer.from; }

// Says to the members that this rank is ready, as soon as each is connected.
bool ReunionRound::all_are_ready() {
  bool all = true;
  for (const std::size_t i : decision_->members) {
    Peer& peer = peers_[i];
    if (i == self_) continue;
    Connection& connection = channel(peer);
    const bool connected = i < self_ ? peer.connected : peer.came();
    if (connected && !std::exchange(connection.told, true)) send_line(connection.socket, "ready " + decision_->name);
    if (!connected || connection.ready.empty()) {
      all = false;
    } else if (connection.ready != decision_->name) {
      broken_ = true;
    }
  }
  return all;
}

ReunionRound::Met ReunionRound::take_sockets() {
  Met met;
  met.others_ended = decision_->others_ended;
  for (Peer& peer : peers_) {
    if (is_member(peer)) {
      met.members.push_back(peer.rank);
      met.sockets.push_back(std::move(channel(peer).socket));
    } else if (peer.came()) {
      send_line(peer.from.socket, gone_on_line());
    }
  }
  return met;
}

}  // namespace tnt
