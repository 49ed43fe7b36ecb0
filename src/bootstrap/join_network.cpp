#include "bootstrap/join.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/node.hpp"
#include "comm/hierarchical/communicator.hpp"
#include "comm/network/choice.hpp"
#include "comm/network/communicator.hpp"
#include "comm/shm/shm_communicator.hpp"

namespace tnt {
namespace {

// Data that each rank sends to all others. All ranks take rendezvous and token from rank 0.
struct PeerInfo {
  std::array<char, 32> version{};
  std::array<char, 192> node{};
  std::array<char, 64> rendezvous{};
  std::array<char, 64> token{};
  TransportChoice transport = TransportChoice::automatic;
  bool reproducible = false;
};

template <std::size_t size>
void write(std::array<char, size>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), size - 1));
}

std::vector<PeerInfo> exchange_peer_info(NetworkCommunicator& all, const Settings& settings) {
  PeerInfo own;
  write(own.version, tnt_version());
  write(own.node, node_identity(settings));
  write(own.rendezvous, "tarantella-" + random_name());
  write(own.token, random_name());
  own.transport = settings.transport;
  own.reproducible = settings.shards.has_value();
  std::vector<PeerInfo> peers(static_cast<std::size_t>(all.size()));
  all.run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, peers.data()},
          {.timeout = settings.join_seconds(), .detail = "joining the job"});
  return peers;
}

void compare(const std::vector<PeerInfo>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version != all[0].version) {
      fail(TNT_MISMATCH, "rank {} runs Tarantella {}, rank 0 runs {}: install one version", rank, all[rank].version.data(),
           all[0].version.data());
    }
    if (all[rank].transport != all[0].transport) {
      fail(TNT_MISMATCH, "rank {} has TNT_TRANSPORT={}, rank 0 has {}: set it alike on all ranks (mpirun -x TNT_TRANSPORT)",
           rank, transport_name(all[rank].transport), transport_name(all[0].transport));
    }
    if (all[rank].reproducible != all[0].reproducible) {
      fail(TNT_MISMATCH,
           "rank {} has TNT_REPRODUCIBLE, rank {} has not: set it alike on all ranks (mpirun -x TNT_REPRODUCIBLE)",
           all[rank].reproducible ? rank : 0, all[rank].reproducible ? 0 : rank);
    }
  }
}

// Numbers the nodes in the order of their first ranks; returns the number of each rank's node.
std::vector<int> number_nodes(const std::vector<PeerInfo>& all) {
  std::vector<int> nodes;
  std::vector<const PeerInfo*> first;
  for (const PeerInfo& one : all) {
    const auto known = std::find_if(first.begin(), first.end(), [&](const auto* other) { return other->node == one.node; });
    nodes.push_back(static_cast<int>(known - first.begin()));
    if (known == first.end()) first.push_back(&one);
  }
  return nodes;
}

int most_on_a_node(const std::vector<int>& nodes) {
  std::vector<int> ranks(nodes.size());  // of each node
  for (const int node : nodes) ++ranks[static_cast<std::size_t>(node)];
  return *std::max_element(ranks.begin(), ranks.end());
}

// Whether each node's ranks can share memory.
bool fits_in_memory(const std::vector<int>& nodes) {
  return nodes.size() <= static_cast<std::size_t>(max_job_ranks) && most_on_a_node(nodes) <= max_ranks;
}

// flat: messages from rank to rank, over the network that is there.
TransportChoice choose_transport(TransportChoice wanted, TransportChoice flat, const std::vector<int>& nodes) {
  const bool one_node = std::all_of(nodes.begin(), nodes.end(), [](int node) { return node == 0; });
  if (wanted == TransportChoice::automatic) {
    if (!fits_in_memory(nodes)) return flat;
    return one_node ? TransportChoice::shm : TransportChoice::hierarchical;
  }
  if (wanted == TransportChoice::hierarchical && !fits_in_memory(nodes)) {
    fail(TNT_UNSUPPORTED, "TNT_TRANSPORT=hierarchical: {} ranks, {} on a node: at most {} are supported, {} on a node; use {}",
         nodes.size(), most_on_a_node(nodes), max_job_ranks, max_ranks, transport_name(flat));
  }
  if (wanted == TransportChoice::shm && !one_node) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TRANSPORT=shm: the {} ranks are on {} nodes, which share no memory; use auto", nodes.size(),
         *std::max_element(nodes.begin(), nodes.end()) + 1);
  }
  const bool is_mpi =
      wanted == TransportChoice::mpi || wanted == TransportChoice::mpi_native || wanted == TransportChoice::mpi_auto;
  if ((is_mpi && flat != TransportChoice::mpi) || (wanted == TransportChoice::tcp && flat != TransportChoice::tcp)) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TRANSPORT={}: the ranks of this job are connected by {}; use auto, {}, hierarchical or shm",
         transport_name(wanted), flat == TransportChoice::tcp ? "TCP" : "MPI", transport_name(flat));
  }
  return wanted;
}

// With shards, sums are promised to have the same bits on any number of ranks, and MPI promises no order.
void take_native(NetworkCommunicator& all, TransportChoice transport, const Settings& settings) {
  if (transport != TransportChoice::mpi_native && transport != TransportChoice::mpi_auto) return;
  if (settings.shards) {
    return log(LogLevel::info,
               "TNT_REPRODUCIBLE is set: MPI's own collectives are not taken, as they sum in an order of their own");
  }
  const bool measured = transport == TransportChoice::mpi_auto;
  const NativeChoice choice = measured ? measure_native(all, settings.join_seconds()) : NativeChoice::everywhere();
  all.take_native(choice);
  if (measured) log(LogLevel::info, "MPI's own collectives are faster here, and taken: {}", choice.describe());
}

std::unique_ptr<Communicator> make_communicator(const std::shared_ptr<Network>& network, Settings& settings,
                                                const std::shared_ptr<FlightRecorder>& recorder) {
  auto world = std::make_shared<NetworkWorld>(network, recorder);
  NetworkCommunicator all(world);
  const auto peers = exchange_peer_info(all, settings);
  compare(peers);
  const std::vector<int> nodes = number_nodes(peers);
  settings.rendezvous = peers[0].rendezvous.data();
  settings.token = peers[0].token.data();
  const TransportChoice flat = network->transport() == std::string_view("tcp") ? TransportChoice::tcp : TransportChoice::mpi;
  const TransportChoice transport = choose_transport(settings.transport, flat, nodes);
  log(LogLevel::info, "{} ranks on {} nodes, transport {}: {}", nodes.size(), *std::max_element(nodes.begin(), nodes.end()) + 1,
      transport_name(transport), network->name());
  std::vector<int> members;  // of this node
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] == nodes[static_cast<std::size_t>(settings.rank)]) members.push_back(static_cast<int>(rank));
  }
  const auto check = [&] {  // a rank that has died does not come to the node's rendezvous, and only the network knows
    for (const int rank : members) {
      if (rank != settings.rank && network->lost(rank)) fail(TNT_PEER_LOST, "rank {} ended before all ranks had joined", rank);
    }
  };
  if (transport == TransportChoice::shm) return std::make_unique<ShmCommunicator>(join_node(settings, recorder, check));
  world->set_nodes(nodes);
  auto over_network = std::make_unique<NetworkCommunicator>(world);
  if (const auto doubling = measure_doubling(*over_network, settings.join_seconds())) {
    log(LogLevel::info, "all_reduce between nodes gathers up to {} bytes and doubles up to {}, as measured", doubling->above,
        doubling->up_to);
    over_network->set_doubling(doubling);
  }
  take_native(*over_network, transport, settings);
  if (transport != TransportChoice::hierarchical) return over_network;

  auto node = join_node(settings, members, world->node(settings.rank), recorder, check);
  node->set_remote_abort_link(remote_abort_link(world));
  return HierarchicalCommunicator::make(std::move(over_network), std::make_unique<ShmCommunicator>(node, members));
}

}  // namespace

JoinedJob join_network(std::shared_ptr<Network> network, const std::string& mpi_variable, Settings& settings) {
  settings.rank = network->rank();
  settings.ranks = network->size();
  if (!mpi_variable.empty()) configure_log(settings);  // MPI has given the place
  if (network->size() == 1) {
    fail(TNT_UNSUPPORTED,
         "{} says that this process is one of several ranks, but {} sees only this process: put the library of the MPI whose "
         "mpirun or srun started it first into LD_LIBRARY_PATH",
         mpi_variable, network->name());
  }
  try {
    auto recorder = open_flight_recorder(settings);
    auto communicator = make_communicator(network, settings, recorder);
    return {std::move(communicator), std::move(network), std::move(recorder)};
  } catch (const Error&) {
    network->skip_finalize();
    throw;
  }
}

}  // namespace tnt
