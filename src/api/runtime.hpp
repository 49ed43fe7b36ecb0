// This process' part in the job between tnt_init and tnt_finalize: the only global state of the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "api/device_collectives.hpp"
#include "base/settings.hpp"
#include "base/trace.hpp"
#include "bootstrap/join.hpp"
#include "bootstrap/reunion.hpp"
#include "comm/communicator.hpp"
#include "comm/executor.hpp"
#include "reducer/communicator_pool.hpp"
#include "reducer/fusion_threshold.hpp"
#include "reducer/progress_engine.hpp"

// The object behind a tnt_comm_t.
struct tnt_comm {
  tnt_comm(std::unique_ptr<tnt::Communicator> with, int rank, std::shared_ptr<tnt::Network> over)
      : network(std::move(over)),
        communicator(std::move(with)),
        rank_in_job(rank),
        defers_cancellation(communicator->defers_cancellation()) {}
  ~tnt_comm() {
    if (network && communicator->async_error()) network->skip_finalize();
  }
  // Of the collectives, or of messages to or from the peer.
  [[nodiscard]] tnt::Executor& executor_of(const tnt::Call& call) {
    using Direction = tnt::Executors::Direction;
    if (!tnt::is_message(call.kind)) return executor;
    return channels.of(call.root, call.kind == tnt::Call::send ? Direction::to : Direction::from);
  }

  std::shared_ptr<tnt::Network> network;  // of the communicator of all ranks, if they are connected by one
  std::unique_ptr<tnt::Communicator> communicator;
  int rank_in_job;                 // of this process, as errors name it: in the communicator whose ranks have joined or met
  bool defers_cancellation;        // the communicator's answer
  std::atomic<double> timeout{0};  // seconds; 0: of the settings
  // with TNT_ERRORS_RETURN, if TCP connects the ranks or those of a communicator of which this one came; else null
  std::unique_ptr<tnt::Reunion> reunion;
  // the following members are destroyed first, which waits for operations that were started on the communicator
  std::mutex device_mutex;
  std::shared_ptr<tnt::DeviceCollectives> device_collectives;  // created by the first call with a stream
  tnt::Executor executor;                                      // of the collectives
  tnt::Executors channels;                                     // of point-to-point messages
  std::optional<tnt::TransportSpeed> speed;                    // measured for the first reducer
  // of reducers in host memory, which may outlive this object
  std::shared_ptr<tnt::CommunicatorPool> pool = std::make_shared<tnt::CommunicatorPool>(false);
  std::shared_ptr<tnt::CommunicatorPool> pool_with_flat_sums = std::make_shared<tnt::CommunicatorPool>(true);
};

namespace tnt {

// All but the communicators, reducers and works, which belong to their handles (handles.hpp).
class Runtime {
 public:
  Runtime(Settings settings, std::shared_ptr<FlightRecorder> recorder);

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] Trace& trace() noexcept { return trace_; }
  [[nodiscard]] FlightRecorder* recorder() noexcept { return recorder_.get(); }  // nullptr without our launcher
  [[nodiscard]] double timeout(const tnt_comm& comm) const noexcept {
    const double own = comm.timeout.load(std::memory_order_relaxed);
    return own > 0 ? own : settings_.timeout;
  }
  [[nodiscard]] CallContext context(const tnt_comm& comm) const noexcept { return {.timeout = timeout(comm)}; }
  // Of processes that meet in a communicator which is a job of its own. timeout: its deadline; 0: of the settings.
  [[nodiscard]] Settings settings_to_meet(double timeout) const;
  // Of all reducers in host memory. Exists as long as one of them, so that a process without reducers has no threads.
  [[nodiscard]] std::shared_ptr<ProgressEngine> progress_engine();

  // The runtime of this process; throws TNT_INVALID_ARGUMENT before tnt_init and after tnt_finalize. It exists as long as a
  // handle is in use (HandleUse).
  [[nodiscard]] static Runtime& get();
  // The handle of the communicator of all ranks; throws in the same way.
  [[nodiscard]] static tnt_comm_t world_handle();
  [[nodiscard]] static bool is_world(tnt_comm_t handle) noexcept;

 private:
  Settings settings_;
  Trace trace_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::mutex mutex_;
  std::weak_ptr<ProgressEngine> progress_engine_;
};

// A new handle of the communicator of all ranks that have joined. rank: of this process among them.
[[nodiscard]] tnt_comm_t make_comm(JoinedJob joined, int rank);
// The same of ranks that have met while the job ran. timeout: as in tnt_comm.
[[nodiscard]] tnt_comm_t make_grown(JoinedJob joined, int rank, double timeout);
// The same of a communicator that was made of another, and has its deadline.
[[nodiscard]] tnt_comm_t make_part(const tnt_comm& of, std::unique_ptr<Communicator> communicator);
// The communicator's devices, connected now if they are not yet; all ranks call then. index(): this rank's device, asked for in
// this thread, which may have other default streams than the executor's.
[[nodiscard]] std::shared_ptr<DeviceCollectives> connected_devices(tnt_comm& on, const std::function<int()>& index);

}  // namespace tnt
