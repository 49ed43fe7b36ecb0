// A network: messages between ranks that share no memory, matched by sender, receiver and tag, in the order of sending. MPI
// (src/comm/mpi) and TCP (src/comm/tcp) are implementations; the tests have another.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "common/non_copyable.hpp"
#include "tarantella/tarantella.h"

namespace tnt {

// A nonblocking send or receive, like an MPI_Request. Destroying it before it is complete cancels it; memory that the request
// owns stays alive as long as the network may access it.
class Request : NonCopyable {
 public:
  virtual ~Request() = default;

  // True once the message has been received, or the memory of a sent message may be reused. Never blocks.
  [[nodiscard]] virtual bool test() = 0;

  // Blocks until test() returns true, on a network on which time passes only while ranks block: a simulated one. False at once
  // on all others, which must be polled.
  [[nodiscard]] virtual bool wait() { return false; }
};

// Collectives of the network itself among all its ranks, as MPI has them: their order of summation is the network's. All ranks
// make the same calls of one object in the same order, one after another. Requests are polled as those of messages are; in and
// out are the caller's, or of `memory`, and in == out is in place. At most max_message_bytes for each rank. Thread-safe.
class NativeCollectives : NonCopyable {
 public:
  virtual ~NativeCollectives() = default;

  // Whether the network has this operation, with the results of ours but for the order of summation.
  [[nodiscard]] virtual bool reduces(tnt_dtype_t dtype, tnt_op_t op) const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<Request> all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                            tnt_op_t op, std::shared_ptr<void> memory) = 0;
  // count: elements of out; `in` does not overlap it.
  [[nodiscard]] virtual std::unique_ptr<Request> reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                                tnt_op_t op, std::shared_ptr<void> memory) = 0;
  // bytes: of `in`, which may be this rank's part of out.
  [[nodiscard]] virtual std::unique_ptr<Request> all_gather(const void* in, void* out, std::size_t bytes,
                                                            std::shared_ptr<void> memory) = 0;
  // Another object among the same ranks: in `copy`, once the request is complete.
  [[nodiscard]] virtual std::unique_ptr<Request> duplicate(std::shared_ptr<NativeCollectives>& copy) = 0;
};

// All functions are thread-safe. They throw TNT_SYSTEM.
class Network : NonCopyable {
 public:
  virtual ~Network() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual std::string name() const = 0;                // for the log: library, version and thread level
  [[nodiscard]] virtual const char* transport() const noexcept = 0;  // as in TNT_TRANSPORT; static text
  [[nodiscard]] virtual int max_tag() const noexcept = 0;

  // memory: owns the data; nullptr for data of the caller, who waits for the request or closes the network. At most
  // max_message_bytes bytes; tags from 0 to max_tag.
  [[nodiscard]] virtual std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                                       std::shared_ptr<void> memory) = 0;
  // bytes: the capacity; the message may be shorter. from: a rank, or any_rank for messages of all senders with this tag, of
  // which each sender's keep their order.
  [[nodiscard]] virtual std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                                       std::shared_ptr<void> memory) = 0;

  // The connection to the rank has ended, and everything that it has sent is here. A network that ends the whole job when it
  // loses a rank, as MPI does, need not know.
  [[nodiscard]] virtual bool lost(int /*rank*/) { return false; }

  // The address by which this rank reaches the other one, as a number; "" if the network does not say.
  [[nodiscard]] virtual std::string host_of(int /*rank*/) { return ""; }

  // The network's own collectives; nullptr if it has none. The same object in each call.
  [[nodiscard]] virtual std::shared_ptr<NativeCollectives> native_collectives() { return nullptr; }

  // Between ranks of a node, a message that is longer than this waits until its receiver answers, so two shorter ones are
  // quicker than one that is a little longer. 0: there is no such border.
  [[nodiscard]] virtual std::size_t unasked_bytes() const noexcept { return 0; }

  // Whether a test of a request that finds nothing new releases the core itself.
  [[nodiscard]] virtual bool test_yields() const noexcept { return false; }

  // Of the calling thread, in the network's time.
  virtual void sleep(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

  // Whether messages may lie in memory of the caller: whether nobody but this object lets the network go on after close().
  [[nodiscard]] virtual bool takes_callers_memory() const noexcept { return false; }
  // After an abort, if messages in memory of the caller are not complete. When it returns, no thread of this process is in the
  // network, and from then on all calls throw: nothing accesses that memory any more.
  virtual void close() noexcept {}

  // After an abort: the process must not wait for other ranks when it exits.
  virtual void skip_finalize() noexcept = 0;
};

inline constexpr int any_rank = -1;
inline constexpr std::size_t max_message_bytes = std::size_t{1} << 30;

}  // namespace tnt
