// This process' part in the job between tnt_init and tnt_finalize: the only global state of the library.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "api/device_collectives.hpp"
#include "base/settings.hpp"
#include "base/trace.hpp"
#include "comm/communicator.hpp"
#include "comm/executor.hpp"
#include "launch/join.hpp"
#include "reducer/fusion_threshold.hpp"

// The object behind a tnt_comm_t.
struct tnt_comm {
  std::unique_ptr<tnt::Communicator> communicator;
  // the following members are destroyed first, which waits for operations that were started on the communicator
  std::mutex device_mutex{};
  std::shared_ptr<tnt::DeviceCollectives> device_collectives{};  // created by the first call with a stream
  tnt::Executor executor;                                        // of the collectives
  tnt::Executors channels;                                       // of point-to-point messages
  std::optional<tnt::TransportSpeed> speed{};                    // measured for the first reducer
};

namespace tnt {

class Runtime {
 public:
  Runtime(Settings settings, JoinedJob joined);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] Trace& trace() noexcept { return trace_; }
  [[nodiscard]] tnt_comm& world() noexcept { return world_; }
  [[nodiscard]] CallContext context() const noexcept { return {.timeout = settings_.timeout}; }

  // The runtime of this process; throws TNT_INVALID_ARGUMENT before tnt_init and after tnt_finalize.
  [[nodiscard]] static Runtime& get();

 private:
  Settings settings_;
  std::shared_ptr<Network> network_;  // of a job that mpirun or srun started
  Trace trace_;
  tnt_comm world_;
};

}  // namespace tnt
