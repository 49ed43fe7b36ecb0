// A group of ranks and the collectives among their devices. Everything is enqueued and nothing waits. The caller's stream gets
// one event record and one wait (comm/stream_order.hpp); the work runs on a stream of the communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "common/non_copyable.hpp"
#include "device/device.hpp"

namespace tnt {

// A message of DeviceCommunicator::exchange. Set in or out, not both.
struct Message {
  const void* in = nullptr;  // data to send to the peer
  void* out = nullptr;       // buffer to receive from the peer
  std::size_t count = 0;
  tnt_dtype_t dtype = TNT_UINT8;
  int peer = 0;  // may be this rank itself; the list then has both ends
};

// A send or a recv.
[[nodiscard]] inline Message message_of(const Collective& call) {
  return {.in = call.in, .out = call.out, .count = call.count, .dtype = call.dtype, .peer = call.root};
}

class DeviceCommunicator : NonCopyable {
 public:
  virtual ~DeviceCommunicator() = default;  // waits for enqueued work, at most until its deadline

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual const char* transport() const noexcept = 0;  // "nccl"
  [[nodiscard]] virtual std::string version() const = 0;             // "NCCL 2.28.9"
  // The communicator's own high-priority stream. Other work that is enqueued on it runs between the collectives.
  [[nodiscard]] virtual StreamHandle stream() const noexcept = 0;

  // A collective or a message, on device memory that must stay valid until the stream has passed it. Each is enqueued on
  // stream(), in the order of the calls, which is the same on all ranks. detail: for errors, copied. In place: out == in; for
  // all_gather and reduce_scatter, the rank's own block, and for gather, scatter and all_gather_v, whose block is then not
  // moved; not for all_to_all. Throws the error of an abort, or TNT_INVALID_ARGUMENT; nothing was enqueued then.
  void run(const Collective& call, std::string_view detail);

  // Sends and receives that do not wait for one another, like an NCCL group. Sends and receives of a pair of ranks are matched
  // in the order of the lists and calls. Only ranks with messages call this.
  void exchange(std::span<const Message> messages, std::string_view detail);

  // Device memory that the communicator's library accesses directly if it is an operand; null: any other memory serves as well.
  // Collective, with the same bytes on all ranks; waits on the host. Release it before the communicator, when no enqueued work
  // uses it.
  [[nodiscard]] virtual std::shared_ptr<void> registered_memory(std::size_t /*bytes*/) { return nullptr; }

  // Throws TNT_UNSUPPORTED if the stream is being captured and this communicator cannot be captured in a CUDA graph. Ask before
  // the communicator's stream follows the captured stream.
  virtual void check_capture(StreamHandle /*stream*/) {}

  // Aborts the communication of the whole job, as Communicator::abort.
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  // Throws the error of an abort. A caller that waits on the host calls this from time to time.
  virtual void throw_if_aborted() = 0;
  // Throws the error of the work that the device has passed, which may have ended without a result.
  virtual void check() { throw_if_aborted(); }

  // Later work on stream() comes after the earlier work of another stream, which is not being captured: by an event that the
  // communicator records anyway, before its next operation, which is the next that is enqueued there. False: it has none, and
  // nothing was done.
  [[nodiscard]] virtual bool follow(StreamHandle /*stream*/) { return false; }

  // Makes the stream wait for the last operation, by an event that the communicator has recorded after it anyway. False: it
  // has none, as in a capture.
  [[nodiscard]] virtual bool follow_last(StreamHandle /*stream*/) { return false; }

  // The number of operations in CUDA graphs that still exist. Waits a moment for graphs that were just destroyed.
  [[nodiscard]] virtual std::size_t captured_operations() { return 0; }

  // Collective; nullptr for a negative colour. host: the host communicator of the same split, which must outlive the result;
  // null for a negative colour.
  [[nodiscard]] std::unique_ptr<DeviceCommunicator> split(int color, int key, Communicator* host);

 private:
  void check_peer(const char* call, int peer) const;
  void check(const Collective& call) const;

  // The implementations. Arguments are valid; messages may be empty. The job may have been aborted. enqueue_collective: an
  // all_reduce, reduce_scatter, reduce_scatter_v, all_gather, broadcast, all_to_all or reduce.
  virtual void enqueue_collective(const Collective& call, std::string_view detail) = 0;
  virtual void enqueue_messages(std::span<const Message> messages, std::string_view detail) = 0;
  virtual std::unique_ptr<DeviceCommunicator> create_child(int color, int key, Communicator* host) = 0;  // not after an abort
};

}  // namespace tnt
