// The TNT_ environment variables. Only this file reads them, for Python as well. docs/settings.md has the table for users.
// Variables between the launcher and ranks, and those of tests and benchmarks, begin with TNT_INTERNAL_.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tarantella/tarantella.h"

namespace tnt {

enum class LogLevel { debug, info, warning, error };
// mpi: our collectives over MPI's messages. mpi_native: MPI's own where it has them; mpi_auto: where they are faster.
enum class TransportChoice { automatic, shm, mpi, mpi_native, mpi_auto, tcp, hierarchical };
enum class DeviceTransport { nccl, staged, hierarchical };
enum class Overlap { automatic, on, off };  // whether a thread reduces gradients during the step

struct Settings {
  // the place of this process in the job; set by the launcher
  int rank = 0;               // TNT_RANK
  int ranks = 1;              // TNT_SIZE
  std::string rendezvous;     // TNT_RENDEZVOUS
  std::string token;          // TNT_TOKEN
  std::string flight_record;  // TNT_INTERNAL_FLIGHT_RECORD: memory of the launcher's, "descriptor:device:inode"
  double join_timeout = 0;    // seconds until all ranks must have joined; 0: as timeout
  // what the user may set
  double timeout = 600;                                      // TNT_TIMEOUT, seconds, for every wait
  std::optional<std::size_t> fusion_threshold;               // TNT_FUSION_THRESHOLD, kilobytes or with suffix; here bytes
  bool autotune = false;                                     // TNT_FUSION_THRESHOLD=autotune
  std::optional<tnt_dtype_t> gradient_dtype;                 // TNT_GRADIENT_DTYPE; none: their own
  std::optional<int> shards;                                 // TNT_REPRODUCIBLE: the number of parts of a global batch
  std::string timeline;                                      // TNT_TIMELINE, a file
  std::string fingerprint;                                   // TNT_FINGERPRINT, a file
  LogLevel log_level = LogLevel::warning;                    // TNT_LOG_LEVEL
  bool log_on_all_ranks = false;                             // TNT_ON_ALL_RANKS=log
  bool output_on_all_ranks = false;                          // TNT_ON_ALL_RANKS=output
  bool tensorboard_on_all_ranks = false;                     // TNT_ON_ALL_RANKS=tensorboard
  bool mlflow_on_all_ranks = false;                          // TNT_ON_ALL_RANKS=mlflow
  TransportChoice transport = TransportChoice::automatic;    // TNT_TRANSPORT, of jobs with a network
  DeviceTransport device_transport = DeviceTransport::nccl;  // TNT_DEVICE_TRANSPORT
  std::string nccl_library;                                  // TNT_NCCL_LIBRARY, a file
  std::optional<int> gpus_per_node;                          // TNT_GPUS_PER_NODE; none: all
  // for tests and benchmarks
  Overlap overlap = Overlap::automatic;  // TNT_INTERNAL_OVERLAP
  std::string node;                      // TNT_INTERNAL_NODE: ranks with different ones count as being on different nodes
  std::optional<int> domain;             // TNT_INTERNAL_DOMAIN: ranks of a domain (comm/shm/domains.hpp); none: the machine's
  std::string tuning;                    // TNT_INTERNAL_TUNING, a file; rank 0 reads it
  std::string tuning_cache;              // the file that is used without TNT_INTERNAL_TUNING, if it exists

  [[nodiscard]] double join_seconds() const noexcept { return join_timeout > 0 ? join_timeout : timeout; }
};

[[nodiscard]] const char* transport_name(TransportChoice choice) noexcept;  // as in TNT_TRANSPORT

using Environment = std::function<const char*(const char* name)>;  // like getenv: nullptr if unset
enum class Place { from_environment, from_caller };                // where the place of this process in the job comes from

// Throws TNT_INVALID_ARGUMENT that names an invalid variable and its value.
[[nodiscard]] Settings read_settings(const Environment& environment, Place place = Place::from_environment);
// The same from the environment of the process. Throws also if a TNT_ variable is set that nothing reads.
[[nodiscard]] Settings read_settings(Place place = Place::from_environment);

// Whether our launcher has started this process as the rank in these settings. A caller that gives places may as well have made
// several ranks of the one process that was started.
[[nodiscard]] bool is_launched_as(const Settings& settings);

// What tnt_setting says (tarantella.h): value in one spelling, or the default if value is nullptr.
[[nodiscard]] std::string canonical_setting(const char* name, const char* value);

// Files of measurements for each host in the user's cache. Home directories are often shared by hosts, so the name has the
// host.
//
// "$XDG_CACHE_HOME/tarantella/<subject>-<host>.json", or in ~/.cache; "" if the environment has neither.
[[nodiscard]] std::string host_cache_file(const Environment& environment, std::string_view subject);

}  // namespace tnt
