#include "launch/join.hpp"

#include "base/log.hpp"
#include "comm/local.hpp"
#include "comm/mpi/load.hpp"
#include "comm/shm/shm_communicator.hpp"
#include "launch/join_network.hpp"
#include "launch/mpi_environment.hpp"
#include "launch/node.hpp"

namespace tnt {

Joined join_job(Settings& settings, bool placed) {
  configure_log(settings);
  if (settings.ranks == 1 && !placed) {
    if (const std::string sign = started_by_mpi(); !sign.empty()) return join_network(open_mpi_network(), sign, settings);
  }
  if (settings.transport == TransportChoice::mpi || settings.transport == TransportChoice::hierarchical) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TRANSPORT={}: this process was not started by mpirun or srun",
         transport_name(settings.transport));
  }
  if (settings.ranks == 1) return {std::make_unique<LocalCommunicator>(), nullptr};
  return {std::make_unique<ShmCommunicator>(join_node(settings)), nullptr};
}

}  // namespace tnt
