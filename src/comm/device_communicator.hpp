// A group of ranks and the collectives among their devices. Everything is enqueued and nothing waits. The caller's stream gets
// one event record and one wait (comm/stream_order.hpp); the work runs on a stream of the communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/non_copyable.hpp"
#include "comm/call.hpp"
#include "comm/communicator.hpp"
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

class DeviceCommunicator : NonCopyable {
 public:
  virtual ~DeviceCommunicator() = default;  // waits for enqueued work, at most until its deadline

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual const char* transport() const noexcept = 0;  // "nccl"
  [[nodiscard]] virtual std::string version() const = 0;             // "NCCL 2.28.9"
  // The communicator's own high-priority stream. Other work that is enqueued on it runs between the collectives.
  [[nodiscard]] virtual StreamHandle stream() const noexcept = 0;

  // Each call is enqueued on stream(), in the order of the calls, which is the same on all ranks. detail: for errors, copied.
  // Buffers are device memory that must stay valid until the stream has passed the operation. In place: out == in; for
  // all_gather and reduce_scatter, the rank's own block; not for all_to_all. Throws the error of an abort, or
  // TNT_INVALID_ARGUMENT; nothing was enqueued then.
  void all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, std::string_view detail) {
    collective({.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out, detail);
  }
  // The sum of scale * in, of a floating-point type; each rank has a scale of its own.
  void all_reduce_scaled(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, double scale,
                         std::string_view detail);
  void reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, std::string_view detail) {
    collective({.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out, detail);
  }
  void all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, std::string_view detail) {
    collective({.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out, detail);
  }
  void broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root, std::string_view detail) {
    collective({.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out, detail);
  }
  void all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, std::string_view detail) {
    collective({.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out, detail);
  }
  void reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root, std::string_view detail) {
    collective({.kind = Call::reduce, .dtype = dtype, .op = op, .root = root, .count = count}, in, out, detail);
  }
  void collective(const Call& call, const void* in, void* out, std::string_view detail);  // any of them

  // Sends and receives that do not wait for one another, like an NCCL group. Sends and receives of a pair of ranks are matched
  // in the order of the lists and calls. Only ranks with messages call this.
  void exchange(std::span<const Message> messages, std::string_view detail);
  // All but reduce_scatter_v are made of messages. Arguments of host collectives of the same names (communicator.hpp). A block
  // that is in its place already is not moved.
  void gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root, std::string_view detail);
  void scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root, std::string_view detail);
  void all_gather_v(const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype, std::string_view detail);
  void reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype, tnt_op_t op,
                        std::string_view detail);
  void all_to_all_v(const void* in, void* out, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> recv_counts, tnt_dtype_t dtype, std::string_view detail);
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, int to, std::string_view detail) {
    const Message message{.in = in, .count = count, .dtype = dtype, .peer = to};
    exchange({&message, 1}, detail);
  }
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, int from, std::string_view detail) {
    const Message message{.out = out, .count = count, .dtype = dtype, .peer = from};
    exchange({&message, 1}, detail);
  }

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

  // The implementations. Arguments are valid; messages may be empty. The job may have been aborted.
  virtual void enqueue_collective(const Call& call, const void* in, void* out, std::string_view detail) = 0;
  virtual void enqueue_scaled(const Call& call, const void* in, void* out, double scale, std::string_view detail) = 0;
  virtual void enqueue_reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype,
                                        tnt_op_t op, std::string_view detail) = 0;
  virtual void enqueue_messages(std::span<const Message> messages, std::string_view detail) = 0;
  virtual std::unique_ptr<DeviceCommunicator> create_child(int color, int key, Communicator* host) = 0;  // not after an abort
};

}  // namespace tnt
