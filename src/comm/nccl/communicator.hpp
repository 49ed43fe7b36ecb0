// Collectives among the ranks' GPUs by NCCL, on a stream of the communicator.
//
// This folder has everything about NCCL: its API, opening it, connecting ranks, and the watchdog that turns a stuck operation
// into an error. It knows CUDA only through the Device interface.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/device_communicator.hpp"
#include "comm/nccl/handle.hpp"
#include "comm/nccl/watchdog.hpp"
#include "device/handles.hpp"

namespace tnt {

struct NcclOptions {
  double timeout = 600.0;          // TNT_TIMEOUT, in seconds
  std::string library = {};        // TNT_NCCL_LIBRARY
  Vendor vendor = Vendor::nvidia;  // of the devices
  bool deterministic = false;      // the same bits in every run: fixed algorithm, protocol and number of channels
  int max_ctas = 0;                // maximum of thread blocks for a collective; 0: NCCL's choice
  int ranks_per_id = 128;          // ranks for each unique id, if NCCL supports several ids
};

// Collective over host. host and device must outlive the communicator. library: replaces the library that the options name. If
// the ranks cannot use NCCL together, all ranks throw the same TNT_UNSUPPORTED, TNT_MISMATCH or TNT_INVALID_ARGUMENT, and
// nothing is aborted. An error while they connect aborts the job.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Device& device, Communicator& host,
                                                                         const NcclOptions& options,
                                                                         std::shared_ptr<const NcclLibrary> library = nullptr);

class NcclCommunicator final : public DeviceCommunicator, private WatchedComm {
 public:
  // open(handle) makes the NCCL communicator over the ranks of host. job_rank: this rank in the job.
  NcclCommunicator(Device& device, Communicator& host, const NcclOptions& options, std::shared_ptr<const NcclLibrary> library,
                   int job_rank, const std::function<void(NcclHandle&)>& open);
  ~NcclCommunicator() override;

  [[nodiscard]] int rank() const noexcept override { return host_.rank(); }
  [[nodiscard]] int size() const noexcept override { return host_.size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "nccl"; }
  [[nodiscard]] std::string version() const override { return library_->name(); }
  [[nodiscard]] StreamHandle stream() const noexcept override { return stream_.get(); }

  void abort(tnt_status_t status, const std::string& message) noexcept override { host_.abort(status, message); }
  void throw_if_aborted() override;
  void check() override;
  [[nodiscard]] bool follow(StreamHandle stream) override;
  [[nodiscard]] bool follow_last(StreamHandle stream) override;
  // None with options.deterministic: NCCL may choose other algorithms for registered memory.
  [[nodiscard]] std::shared_ptr<void> registered_memory(std::size_t bytes) override;
  [[nodiscard]] std::size_t captured_operations() override;

 private:
  void enqueue_collective(const Collective& call, std::string_view detail) override;
  void enqueue_scaled(const Collective& call, std::string_view detail);
  void enqueue_uneven(const Collective& call, std::string_view detail);
  void enqueue_messages(std::span<const Message> messages, std::string_view detail) override;
  std::unique_ptr<DeviceCommunicator> create_child(int color, int key, Communicator* host) override;
  [[nodiscard]] std::optional<Error> async_error() override { return handle().async_error(); }
  void abort() noexcept override;

  // A failed call ends the job, because the other ranks wait in it; throws the error that all ranks report.
  [[noreturn]] void fail_on_all_ranks(const Error& error, const std::string& what);
  // use(ncclComm_t) calls NCCL. A call without elements is counted and enqueues nothing.
  template <typename Use>
  void watched(const Call& call, const char* what, std::string_view detail, Use&& use);
  // Collectives are called on it.
  [[nodiscard]] NcclHandle& handle() noexcept { return blocking_ ? *blocking_ : root_; }
  [[nodiscard]] bool wait_until_idle();
  [[nodiscard]] std::size_t operations_in_graphs() const noexcept;
  // calls() calls NCCL; its communications begin together.
  template <typename Calls>
  nccl::ncclResult_t grouped(Calls&& calls);
  nccl::ncclResult_t send_and_receive(nccl::ncclComm_t comm, std::span<const Message> messages);

  Device& device_;
  Communicator& host_;
  NcclOptions options_;
  int job_rank_;
  std::shared_ptr<const NcclLibrary> library_;
  Stream stream_;
  std::mutex mutex_;                    // keeps an operation and its events together
  NcclHandle root_;                     // connects the ranks and aborts, and never blocks
  std::optional<NcclHandle> blocking_;  // its child, where a call of a non-blocking communicator would cost a thread
  std::shared_ptr<void> in_graphs_;     // each captured operation has a copy as long as its graph exists
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace tnt
