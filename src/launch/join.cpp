#include "launch/join.hpp"

#include "base/log.hpp"
#include "comm/local.hpp"
#include "comm/mpi/load.hpp"
#include "comm/shm/shm_communicator.hpp"
#include "launch/join_network.hpp"
#include "launch/mpi_environment.hpp"
#include "launch/node.hpp"

namespace tnt {

JoinedJob join_job(Settings& settings, bool explicit_place) {
  configure_log(settings);
  if (settings.ranks == 1 && !explicit_place) {
    if (const std::string mpi_variable = mpi_launcher_variable(); !mpi_variable.empty())
      return join_network(open_mpi_network(), mpi_variable, settings);
  }
  if (settings.transport == TransportChoice::mpi || settings.transport == TransportChoice::hierarchical) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TRANSPORT={}: this process was not started by mpirun or srun",
         transport_name(settings.transport));
  }
  if (settings.ranks == 1) return {std::make_unique<LocalCommunicator>(), nullptr};
  return {std::make_unique<ShmCommunicator>(join_node(settings)), nullptr};
}

}  // namespace tnt
