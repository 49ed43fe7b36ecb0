#include "bootstrap/join.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/job_token.hpp"
#include "base/log.hpp"
#include "bootstrap/join_watch.hpp"
#include "bootstrap/node.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "comm/local.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "comm/shm/shm_communicator.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

// The start of MPI is no wait for another rank alone: on a busy machine it takes seconds by itself.
constexpr double min_seconds_in_mpi = 10.0;

// Python's ranks leave this variable to the programs that they start. A fork is refused by the C API itself.
void refuse_program_of_rank() {
  const char* const text = std::getenv("TNT_INTERNAL_JOINED");  // "RANK PID"
  const std::string_view joined = text == nullptr ? "" : text;
  const std::size_t blank = std::min(joined.find(' '), joined.size());
  const std::string_view rank = joined.substr(0, blank);
  const std::string_view process = joined.substr(std::min(blank + 1, joined.size()));
  if (process.empty() || process == std::to_string(getpid())) return;
  fail(TNT_UNSUPPORTED,
       "process {} was started by rank {} (process {}) and is no rank itself: call Tarantella in the rank, and pass to the "
       "processes that it starts what they need to know",
       getpid(), rank, process);
}

// It would be taken for the name of a local socket, where a rank on another node waits until its deadline.
void refuse_address_without_scheme(const std::string& rendezvous) {
  if (rendezvous.find(':') == std::string::npos) return;
  fail(TNT_INVALID_ARGUMENT, "TNT_RENDEZVOUS={}: expected tcp://HOST:PORT, or a word without a colon for ranks of one node",
       rendezvous);
}

}  // namespace

std::shared_ptr<FlightRecorder> open_flight_recorder(const Settings& settings) {
  try {
    return FlightRecorder::open(settings.flight_record, settings.rank, settings.ranks);
  } catch (const Error& error) {
    log(LogLevel::warning, "rank {} records no calls: {}", settings.rank, error.what());
    return nullptr;
  }
}

JoinedJob join_job(Settings& settings, bool explicit_place, const void* mpi_comm) {
  configure_log(settings);
  if (!explicit_place) refuse_program_of_rank();
  if (explicit_place && !is_launched_as(settings)) settings.flight_record.clear();
  if (mpi_comm != nullptr) {
    std::shared_ptr<Network> network = open_mpi_network("", mpi_comm, settings.join_seconds());
    if (network->size() > 1) return join_network(std::move(network), "mpi_comm", settings);
    return {std::make_unique<LocalCommunicator>(), nullptr, open_flight_recorder(settings)};
  }
  if (settings.ranks == 1 && !explicit_place) {
    const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
    refuse_tasks_without_pmi(environment);
    if (const std::string mpi_variable = mpi_launcher_variable(environment); !mpi_variable.empty()) {
      const double seconds = std::max(settings.join_seconds(), min_seconds_in_mpi);
      JoinWatch watch(read_mpi_place(environment), seconds, end_process_that_cannot_join);
      std::shared_ptr<Network> network = open_mpi_network(mpi_variable);
      watch.joined();
      return join_network(std::move(network), mpi_variable, settings);
    }
  }
  if (settings.ranks > 1 && std::getenv("TNT_INTERNAL_LAUNCHER") == nullptr) warn_of_visible_token(settings.token);
  return join_at_rendezvous(settings);
}

JoinedJob join_at_rendezvous(Settings& settings) {
  if (settings.ranks > 1 && is_tcp_address(settings.rendezvous)) return join_network(join_by_tcp(settings), "", settings);
  if (settings.ranks > 1) refuse_address_without_scheme(settings.rendezvous);
  const bool last_of_hosts = is_tcp_address(settings.rendezvous);  // a job over TCP of which one rank is left
  if (settings.transport != TransportChoice::automatic && settings.transport != TransportChoice::shm && !last_of_hosts) {
    fail(TNT_INVALID_ARGUMENT,
         "TNT_TRANSPORT={}: this process was not started by mpirun or srun, or with a rendezvous tcp://host:port",
         transport_name(settings.transport));
  }
  auto recorder = open_flight_recorder(settings);
  if (settings.ranks == 1) return {std::make_unique<LocalCommunicator>(), nullptr, std::move(recorder)};
  auto communicator = std::make_unique<ShmCommunicator>(join_node(settings, recorder));
  return {std::move(communicator), nullptr, std::move(recorder)};
}

namespace {

bool above_one(const char* value) { return value != nullptr && std::strtol(value, nullptr, 10) > 1; }

}  // namespace

std::string mpi_launcher_variable(const Environment& environment) {
  if (environment("TNT_SIZE") != nullptr) return "";  // our launcher started the process, whatever started the launcher
  // Open MPI; MPICH's Hydra, Intel MPI and MVAPICH
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (above_one(environment(name))) return name;
  }
  // srun: tasks of a step that can find each other (a batch script alone has SLURM_NTASKS, too)
  const bool has_pmi = environment("PMIX_RANK") != nullptr || environment("PMI_RANK") != nullptr;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (has_pmi && above_one(environment(name))) return name;
  }
  return "";
}

void refuse_tasks_without_pmi(const Environment& environment) {
  for (const char* name : {"TNT_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment(name) != nullptr) return;  // started by something that says how ranks meet, also if there is one alone
  }
  const char* const tasks = environment("SLURM_STEP_NUM_TASKS");  // a batch script alone has none
  if (!above_one(tasks)) return;
  fail(
      TNT_UNSUPPORTED,
      "srun started {} tasks that cannot find each other, each would train by itself: use `srun --mpi=pmix` (`srun --mpi=list` "
      "shows what this Slurm has), or give each task TNT_RANK, TNT_SIZE, TNT_RENDEZVOUS and TNT_TOKEN (docs/clusters.md, "
      "Without MPI). For programs that have nothing to do with each other set TNT_SIZE=1",
      tasks);
}

}  // namespace tnt
