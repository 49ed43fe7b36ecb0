// The TNT_ environment variables. Only this file reads them. docs/settings.md has the table for users.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "tarantella/tarantella.h"

namespace tnt {

enum class LogLevel { debug, info, warning, error };
enum class TransportChoice { automatic, shm, mpi, hierarchical };
enum class DeviceTransport { nccl, staged, hierarchical };
enum class Overlap { automatic, on, off };  // whether a thread reduces gradients during the step

struct Settings {
  // the place of this process in the job; set by the launcher
  int rank = 0;
  int ranks = 1;
  std::string rendezvous;
  std::string token;
  double join_timeout = 0.0;  // seconds until all ranks must have joined; 0: as timeout
  // what the user may set
  double timeout = 600.0;  // TNT_TIMEOUT, seconds, for every wait
  // TNT_FUSION_THRESHOLD, kilobytes or with a unit; here in bytes
  std::optional<std::size_t> fusion_threshold;
  // TNT_GRADIENT_DTYPE, the wire type of gradients; none: their own
  std::optional<tnt_dtype_t> gradient_dtype;
  Overlap overlap = Overlap::automatic;                      // TNT_OVERLAP
  std::string timeline;                                      // TNT_TIMELINE, a file
  LogLevel log_level = LogLevel::warning;                    // TNT_LOG_LEVEL
  bool log_on_all_devices = false;                           // TNT_LOG_ON_ALL_DEVICES
  TransportChoice transport = TransportChoice::automatic;    // TNT_TRANSPORT, under mpirun and srun
  std::string tuning;                                        // TNT_TUNING, a file; rank 0 reads it
  std::string tuning_cache;                                  // the file that is used without TNT_TUNING, if it exists
  DeviceTransport device_transport = DeviceTransport::nccl;  // TNT_DEVICE_TRANSPORT
  std::string nccl_library;                                  // TNT_NCCL_LIBRARY, a file
  // TNT_NODE, for tests: ranks with different values count as different nodes
  std::string node;

  [[nodiscard]] double join_seconds() const noexcept { return join_timeout > 0 ? join_timeout : timeout; }
};

[[nodiscard]] const char* transport_name(TransportChoice choice) noexcept;  // as in TNT_TRANSPORT

using Environment = std::function<const char*(const char* name)>;  // like getenv: nullptr if unset

// Throws TNT_INVALID_ARGUMENT that names an invalid variable and its value.
[[nodiscard]] Settings read_settings(const Environment& environment);
[[nodiscard]] Settings read_settings();  // from the process' environment

}  // namespace tnt
