// A group of ranks and the collectives among their devices. Everything is enqueued and nothing waits: the calling stream gets
// one event record and one wait (comm/stream_order.hpp), the work runs on a stream of the communicator's own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace tnt {

// One of several that go out and come in together: DeviceCommunicator::exchange.
struct Message {
  const void* in = nullptr;  // sent to the peer
  void* out = nullptr;       // or received from it; one of the two
  std::size_t count = 0;
  int peer = 0;  // this rank itself too: then the list has both ends
};

class DeviceCommunicator {
 public:
  DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;
  virtual ~DeviceCommunicator() = default;  // the caller's; waits for what is on the way, at most until its deadline

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual const char* transport() const noexcept = 0;  // "nccl"
  [[nodiscard]] virtual std::string version() const = 0;             // "NCCL 2.28.9"
  // The communicator's own, of high priority. What is enqueued on it lies between the collectives.
  [[nodiscard]] virtual StreamHandle stream() const noexcept = 0;

  // Each is enqueued on stream(), in the order of the calls, which is the same on all ranks; detail: for errors, copied.
  // Buffers are device memory that must live until the stream has come past. In place where the result has the input's place:
  // out == in, of all_gather and reduce_scatter this rank's block; not all_to_all. Throws what ended the job's communication,
  // if anything has, or TNT_INVALID_ARGUMENT: then nothing was enqueued.
  void all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, std::string_view detail) {
    collective({.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out, detail);
  }
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
  void collective(const Call& call, const void* in, void* out, std::string_view detail);  // any of them

  // Messages of which none waits for another: what goes to a peer meets what it takes from here, in the order of the lists and
  // calls. Only the ranks that the messages are between call this.
  void exchange(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail);
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, int to, std::string_view detail) {
    const Message message{.in = in, .count = count, .peer = to};
    exchange({&message, 1}, dtype, detail);
  }
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, int from, std::string_view detail) {
    const Message message{.out = out, .count = count, .peer = from};
    exchange({&message, 1}, dtype, detail);
  }

  // Throws TNT_UNSUPPORTED if the stream is captured into a graph that this communicator's work cannot go into. To be asked
  // before the communicator's stream is made to follow that one: nothing has become part of the graph then.
  virtual void check_capture(StreamHandle /*stream*/) {}

  // Ends the communication of the whole job, as Communicator::abort does.
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  // Throws what ended the communication; a caller that waits on the host asks now and then.
  virtual void throw_if_aborted() = 0;

  // Collective; nullptr for a negative colour. host: the host communicator of the part, made by the same split, null for a
  // negative colour; it has to live as long as the part.
  [[nodiscard]] std::unique_ptr<DeviceCommunicator> split(int color, int key, Communicator* host);

 private:
  void check_peer(const char* call, int peer) const;

  // The same, of arguments that make sense; messages of no elements may be among them. The job's communication may have ended.
  virtual void enqueue_collective(const Call& call, const void* in, void* out, std::string_view detail) = 0;
  virtual void enqueue_messages(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail) = 0;
  virtual std::unique_ptr<DeviceCommunicator> part(int color, int key, Communicator* host) = 0;  // not after an end
};

}  // namespace tnt
