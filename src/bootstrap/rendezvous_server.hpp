// The side of a rendezvous that listens: it takes the ranks that are expected, and tells all of them the error if one cannot
// join. Which kind of socket it listens on is its caller's matter (rendezvous.hpp, tcp_join.cpp).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"
#include "base/settings.hpp"
#include "bootstrap/rendezvous_lines.hpp"
#include "common/error.hpp"

namespace tnt {

class RendezvousServer {
 public:
  struct JoinedRank {
    FileDescriptor socket;
    std::string port;  // see RendezvousRequest::Join
  };

  // Expects the ranks above this one. accepts: whether a connection may speak at all; called for each.
  RendezvousServer(const Settings& settings, FileDescriptor listener, bool (*accepts)(const FileDescriptor& socket));

  // Returns when all have joined; they wait for an answer then. Throws TNT_TIMEOUT, TNT_PEER_LOST or TNT_MISMATCH, and what
  // check throws, which is called at least once in a second.
  std::map<int, JoinedRank>& wait_for_all(const std::function<void()>& check = {});

  // Reports an error to all ranks that have joined, and for a moment to ranks that are about to connect, which would otherwise
  // wait for a rank that is gone. A rank that gets the error may try again, so nobody is told before the listener is closed,
  // unless a latecomer would be missed.
  void report_error(const Error& error);

 private:
  // A connection of which the request has not arrived yet. It costs nobody else time, however long it stays silent.
  struct Connection {
    FileDescriptor socket;
    Deadline deadline;
    LineReader request;
  };

  struct PeerRequest : RendezvousRequest {
    FileDescriptor socket;
  };

  [[nodiscard]] bool may_receive_more() const;
  void report_to_joined(const std::string& line);
  [[nodiscard]] std::optional<PeerRequest> next_request(const Deadline& deadline);
  void receive(const Deadline& deadline);
  void accept();
  [[nodiscard]] std::optional<PeerRequest> parse(Connection connection);
  void refuse_token(const PeerRequest& request);
  void on_exit(const PeerRequest& request);
  void on_join(PeerRequest& request);
  [[nodiscard]] std::string missing() const;
  [[nodiscard]] std::string strangers() const;

  const Settings& settings_;
  std::size_t expected_;
  FileDescriptor listener_;
  bool (*accepts_)(const FileDescriptor& socket);
  std::vector<Connection> connections_;  // the oldest first
  std::deque<PeerRequest> requests_;     // have arrived and not been handled yet
  std::map<int, JoinedRank> joined_;
  std::set<int> exited_;    // the launcher has reported that they will not come
  std::set<int> refused_;   // as which processes with another token came
  std::set<int> informed_;  // have received the error
};

}  // namespace tnt
