// How the ranks of a communicator over TCP that are alive find one another, and agree on who they are.
//
// Each rank connects to the ranks below it at once, and a moment later to those above it that have not come, and says who it
// is. A connection that is refused proves that a process has ended: its system says so. Silence proves nothing. A rank below
// which all have ended leads. It decides when each other rank has come or has ended. At the deadline a rank leads if none below
// it takes part, and goes on with those that have come if they are more than half of all ranks, so that no other part can do
// the same: ranks that it does not reach may be alive. Half is enough with the first rank. The decision gets a name. Each
// member says it to all others on the very connections that will join them. So all have the same members, or none goes on.
//
// Lines on a connection:
//   "tarantella 1 <token> meet <rank> <seconds>\n"   from the rank that has connected; seconds: until its deadline
//   "here\n"                                         the answer of a rank that takes part
//   "members <name> <0 or 1> <rank>...\n"            the decision, from the rank that leads, which is the first of them; 1: all
//                                                    others have ended
//   "ready <name>\n"                                 from each member to each other one
//   "error <status> <message>\n"                     the other rank goes on without this one, or gives up
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"
#include "base/forks.hpp"
#include "bootstrap/rendezvous_lines.hpp"
#include "bootstrap/tcp_socket.hpp"

namespace tnt {

// Where the ranks that may meet listen, and the secret by which they know one another.
struct ReunionPlaces {
  explicit ReunionPlaces(FileDescriptor listener_) : listener(std::move(listener_)), closed_in_forks(listener.get()) {}
  FileDescriptor listener;  // of this rank
  ClosedInForks closed_in_forks;
  std::vector<TcpAddress> addresses;  // by rank
  int rank = 0;
  std::string token;
};

class ReunionRound {
 public:
  // members: the ranks that may meet now, ascending, with this one.
  ReunionRound(const ReunionPlaces& places, const std::vector<int>& members, const Deadline& deadline);
  ~ReunionRound();

  struct Met {
    std::vector<int> members;             // ranks, ascending
    std::vector<FileDescriptor> sockets;  // to each of them; none to this one
    bool others_ended = false;            // every rank that is not a member has ended
  };
  // Nothing: a rank was lost after the decision, and the others meet in another round. Throws TNT_TIMEOUT: too few have come,
  // or the others have gone on without this rank; TNT_PEER_LOST: a rank was lost, and another round is not safe, because ranks
  // that are not members may be alive.
  [[nodiscard]] std::optional<Met> run();

 private:
  struct Connection {
    FileDescriptor socket;
    LineReader reader;
    bool told = false;  // this rank has said there that it is ready
    std::string ready;  // the other one has, for the decision of this name
  };
  struct Peer;
  struct Decision {
    std::string name;
    bool others_ended = false;
    std::vector<std::size_t> members;  // indices into peers_
  };

  void step();
  void connect(Peer& peer);
  void finish_connecting(Peer& peer);
  void note_failure(Peer& peer, int error);
  void accept();
  void greet(Connection connection);
  void read(Peer& peer, Connection& connection);
  void adopt(const Peer& leader, std::istringstream& words);
  void lose(Peer& peer, Connection& connection);
  [[nodiscard]] bool leads() const;
  void decide();
  [[noreturn]] void give_up(const std::vector<std::size_t>& came);
  void tell_those_who_came(const std::string& line);
  [[nodiscard]] bool is_member(const Peer& peer) const;
  [[nodiscard]] Connection& channel(Peer& peer) const;
  [[nodiscard]] bool all_are_ready();
  [[nodiscard]] Met take_sockets();

  const ReunionPlaces& places_;
  Deadline deadline_;
  std::int64_t begin_ns_;
  std::int64_t end_ns_;      // of the first deadline of those that have come
  std::vector<Peer> peers_;  // ascending
  std::size_t self_ = 0;
  std::vector<Connection> strangers_;  // have not said yet who they are
  std::optional<Decision> decision_;
  bool broken_ = false;  // a member was lost
};

}  // namespace tnt
