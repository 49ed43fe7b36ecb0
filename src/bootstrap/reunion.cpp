#include "bootstrap/reunion.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/reunion_round.hpp"
#include "comm/local.hpp"
#include "comm/tcp/tcp_network.hpp"

namespace tnt {
namespace {

constexpr int backlog_per_rank = 4;  // connections of ranks that come again, and of those that come late

// What each rank tells all others. The token is that of rank 0.
struct Place {
  std::uint16_t port = 0;
  std::array<char, 33> token{};
};

std::shared_ptr<const ReunionPlaces> exchange_places(Communicator& of, const CallContext& context) {
  auto places = std::make_shared<ReunionPlaces>(listen_on_tcp(0, backlog_per_rank * of.size() + 64));
  Place own{.port = port_of(places->listener)};
  random_name().copy(own.token.data(), own.token.size() - 1);
  std::vector<Place> all(static_cast<std::size_t>(of.size()));
  of.run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, all.data()}, context);
  const std::vector<std::string> hosts = of.hosts();
  for (std::size_t rank = 0; rank < all.size(); ++rank) places->addresses.push_back({hosts[rank], all[rank].port});
  places->rank = of.rank();
  places->token = all[0].token.data();
  return places;
}

JoinedJob join(Settings& settings, int rank, std::vector<FileDescriptor> sockets) {
  if (sockets.size() == 1) return {std::make_unique<LocalCommunicator>(), nullptr, nullptr};
  return join_network(std::make_shared<TcpNetwork>(rank, std::move(sockets)), "", settings);
}

}  // namespace

Reunion::Reunion(Communicator& of, const CallContext& context)
    : places_(exchange_places(of, context)), members_(static_cast<std::size_t>(of.size())) {
  std::iota(members_.begin(), members_.end(), 0);
}

Reunion::Reunion(std::shared_ptr<const ReunionPlaces> places, std::vector<int> members)
    : places_(std::move(places)), members_(std::move(members)) {}

Reunion::~Reunion() = default;

Reunion::Result Reunion::meet(Settings settings) {
  if (std::exchange(has_met_, true)) {
    fail(TNT_INVALID_ARGUMENT, "this communicator was shrunk before: shrink the one that came of it");
  }
  const Deadline last(2 * settings.join_seconds());
  for (Deadline deadline(settings.join_seconds());; deadline = last) {
    std::optional<ReunionRound::Met> met = ReunionRound(*places_, members_, deadline).run();
    if (!met && last.passed()) fail(TNT_PEER_LOST, "ranks were lost again and again while the others met");
    if (!met) continue;
    const auto rank =
        static_cast<int>(std::lower_bound(met->members.begin(), met->members.end(), places_->rank) - met->members.begin());
    try {
      JoinedJob job = join(settings, rank, std::move(met->sockets));
      return {std::move(job), rank, std::unique_ptr<Reunion>(new Reunion(places_, std::move(met->members)))};
    } catch (const Error& error) {
      if (error.status() != TNT_PEER_LOST || !met->others_ended || last.passed()) throw;
      log(LogLevel::info, "the ranks that are alive meet once more: {}", error.what());
    }
  }
}

}  // namespace tnt
