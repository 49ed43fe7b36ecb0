// Collectives among devices without NCCL, through pinned memory and the host's transport. Each operation is a copy to the host,
// a host function that calls the host's collective, and a copy back, all on a stream of the communicator. The calling thread
// does not wait. The host's own waits detect and name failures.
//
// This folder joins the Device interface to a communicator of the host. It knows neither CUDA nor a transport.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/device_communicator.hpp"
#include "comm/executor.hpp"
#include "device/handles.hpp"

namespace tnt {

// Throws TNT_UNSUPPORTED if the stream is being captured: host functions that wait for other ranks would run in each replay.
void refuse_capture(Device& device, StreamHandle stream);

// Collective over host, which this communicator owns and uses alone. Sums have the same bits as on the host's transport. Cost:
// all bytes cross the bus to the device twice, without overlap of copies and communication.
class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(Device& device, std::unique_ptr<Communicator> host, double timeout);
  ~StagedCommunicator() override;

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int size() const noexcept override { return host_->size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "staged"; }
  [[nodiscard]] std::string version() const override;  // "shm through pinned memory"
  [[nodiscard]] StreamHandle stream() const noexcept override { return stream_.get(); }

  void abort(tnt_status_t status, const std::string& message) noexcept override { host_->abort(status, message); }
  void throw_if_aborted() override;
  void check_capture(StreamHandle stream) override { refuse_capture(device_, stream); }

 private:
  struct Operation;
  struct StagedBuffer {  // device memory that is copied to or from pinned memory
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t bytes = 0;
    std::byte* pinned = nullptr;
  };
  void enqueue_collective(const Collective& call, std::string_view detail) override;
  void enqueue_messages(std::span<const Message> messages, std::string_view detail) override;
  // host: see DeviceCommunicator; the child duplicates it.
  std::unique_ptr<DeviceCommunicator> create_child(int color, int key, Communicator* host) override;

  // work(staged) runs on the host between the copies.
  void enqueue(std::vector<StagedBuffer> staged, std::string_view detail,
               std::function<void(const std::vector<StagedBuffer>&, const CallContext&)> work);
  [[nodiscard]] std::vector<StagedBuffer> buffers_of(const Collective& call) const;
  void send_and_receive(const std::vector<Message>& messages, const std::vector<StagedBuffer>& staged,
                        const CallContext& context);
  [[nodiscard]] std::byte* pinned(std::size_t bytes);
  void execute(Operation& operation) noexcept;

  Device& device_;
  std::unique_ptr<Communicator> host_;
  double timeout_;
  std::mutex mutex_;
  std::vector<PinnedBuffer> buffers_;  // the last one is in use; smaller ones may still be in flight
  std::size_t pinned_bytes_ = 0;
  std::atomic<bool> aborted_{false};
  std::mutex error_mutex_;
  std::optional<Error> error_;
  Executors message_executors_;
  Stream stream_;
};

}  // namespace tnt
