#include "bootstrap/join.hpp"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_lines.hpp"
#include "bootstrap/rendezvous_server.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "comm/error_messages.hpp"
#include "comm/tcp/tcp_network.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr double grace_for_others = 5.0;  // seconds after the deadline for a message that names the missing ranks
constexpr std::size_t max_addresses = std::size_t{1024} * 1024;  // bytes of rank 0's answer
constexpr const char* on_host_of_rank_0 = "-";                   // instead of an address
constexpr int lines_of_progress = 3;                             // to rank 0: has asked, has answered, is connected

bool accept_all(const FileDescriptor& /*socket*/) { return true; }  // the token decides

// The reply of rank 0: "ok", and for ranks 1, 2, ... the host as rank 0 sees it and the port.
std::string addresses_line(const std::map<int, RendezvousServer::JoinedRank>& joined) {
  std::string line = "ok";
  for (const auto& [rank, one] : joined) {
    const std::string host = host_of_peer(one.socket);
    line += fmt::format(" {} {}", host.empty() ? on_host_of_rank_0 : host, one.port);
  }
  return line;
}

std::vector<TcpAddress> parse_addresses(const std::string& line, const TcpAddress& of_rank_0, int ranks) {
  std::istringstream words(line);
  std::string word;
  std::vector<TcpAddress> all{of_rank_0};
  words >> word;
  for (int rank = 1; word == "ok" && rank < ranks; ++rank) {
    TcpAddress address;
    words >> address.host >> address.port;
    if (address.host == on_host_of_rank_0) address.host = of_rank_0.host;
    all.push_back(std::move(address));
  }
  if (!words || word != "ok") fail(TNT_SYSTEM, "rank 0 answered '{}' instead of sending the addresses of the ranks", line);
  return all;
}

class TcpJoin {
 public:
  explicit TcpJoin(const Settings& settings)
      : settings_(settings),
        rank_0_(parse_tcp_address(settings.rendezvous)),
        sockets_(static_cast<std::size_t>(settings.ranks)) {}

  std::vector<FileDescriptor> run() {
    check_token(settings_.token);
    FileDescriptor listener = listen_on_tcp(settings_.rank == 0 ? rank_0_.port : 0, settings_.ranks + 16);
    if (settings_.rank == 0) {
      take_above(std::move(listener));
      wait_until_connected();
    } else {
      ask(0, rank_0_, std::to_string(port_of(listener)));
      connect(std::move(listener));
    }
    return std::move(sockets_);
  }

 private:
  // Asks all ranks below to take this one. They answer when the ranks above them have come, so nobody waits in a circle. Rank 0
  // is told how far this rank has come, or why it fails.
  void connect(FileDescriptor listener) {
    const auto all = parse_addresses(answer(0, max_addresses), rank_0_, settings_.ranks);
    const FileDescriptor& rank_0 = sockets_[0];
    try {
      for (int rank = 1; rank < settings_.rank; ++rank) ask(rank, all[static_cast<std::size_t>(rank)], "");
      send_line(rank_0, "asked");
      take_above(std::move(listener));
      send_line(rank_0, "answered");
      for (int rank = 1; rank < settings_.rank; ++rank) (void)answer(rank, max_rendezvous_line);
      send_line(rank_0, "connected");
    } catch (const Error& error) {
      send_line(rank_0, error_line(error.status(), error.what()));
      throw;
    }
  }

  // A rank that waits for another is not to blame: the ranks that have come least far are.
  void wait_until_connected() {
    const Deadline deadline(settings_.join_seconds());
    std::vector<int> progress(sockets_.size(), 0);
    std::vector<LineReader> readers(sockets_.size());
    progress[0] = lines_of_progress;
    while (*std::min_element(progress.begin(), progress.end()) < lines_of_progress) {
      if (deadline.passed()) fail(TNT_TIMEOUT, "{} did not join within {} s", name_ranks(last(progress)), deadline.seconds());
      std::vector<pollfd> waits;
      for (std::size_t rank = 0; rank < sockets_.size(); ++rank) {
        const int socket = progress[rank] < lines_of_progress ? sockets_[rank].get() : -1;  // poll ignores -1
        waits.push_back({socket, POLLIN, 0});
      }
      (void)::poll(waits.data(), waits.size(), milliseconds_left(deadline));
      for (std::size_t rank = 0; rank < sockets_.size(); ++rank) {
        if (waits[rank].revents != 0) progress[rank] += lines_from(rank, readers[rank]);
      }
    }
  }

  [[nodiscard]] int lines_from(std::size_t rank, LineReader& reader) {
    const auto state = reader.read(sockets_[rank]);
    if (state == LineReader::State::failed) fail(TNT_PEER_LOST, "rank {} ended before all ranks had joined", rank);
    if (state == LineReader::State::incomplete) return 0;
    throw_if_error(reader.line());
    reader = LineReader();
    return 1;
  }

  [[nodiscard]] static std::vector<int> last(const std::vector<int>& progress) {
    const int least = *std::min_element(progress.begin(), progress.end());
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < progress.size(); ++rank) {
      if (progress[rank] == least) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  void ask(int rank, const TcpAddress& address, const std::string& port) {
    const Deadline deadline(settings_.join_seconds());
    FileDescriptor& socket = sockets_[static_cast<std::size_t>(rank)];
    socket = connect_by_tcp(address, deadline);
    if (!socket) {
      fail(TNT_TIMEOUT, "rank {} did not join within {} s: nothing answers at {}", rank, deadline.seconds(), to_text(address));
    }
    send_line(socket, join_line(settings_.token, settings_.rank, settings_.ranks, port));
  }

  std::string answer(int rank, std::size_t max_bytes) {
    const Deadline deadline(settings_.join_seconds() + grace_for_others);
    const auto line = read_line(sockets_[static_cast<std::size_t>(rank)], deadline, nullptr, max_bytes);
    if (!line && deadline.passed()) {
      fail(TNT_TIMEOUT, "rank {} did not report within {} s that all ranks had joined", rank, deadline.seconds());
    }
    if (!line) fail(TNT_PEER_LOST, "rank {} ended, or refused this process, before all ranks had joined", rank);
    throw_if_error(*line);
    return *line;
  }

  void take_above(FileDescriptor listener) {
    RendezvousServer server(settings_, std::move(listener), accept_all);
    try {
      auto& joined = server.wait_for_all();
      const std::string line = settings_.rank == 0 ? addresses_line(joined) : "ok";
      for (auto& [rank, one] : joined) {
        send_line(one.socket, line);
        sockets_[static_cast<std::size_t>(rank)] = std::move(one.socket);
      }
    } catch (const Error& error) {
      server.report_error(error);
      throw;
    }
  }

  const Settings& settings_;
  TcpAddress rank_0_;
  std::vector<FileDescriptor> sockets_;  // by rank
};

}  // namespace

std::shared_ptr<Network> join_by_tcp(const Settings& settings) {
  return std::make_shared<TcpNetwork>(settings.rank, TcpJoin(settings).run());
}

}  // namespace tnt
