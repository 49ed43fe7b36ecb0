// A network: messages between ranks that share no memory, matched by sender, receiver and tag, in the order of sending. MPI
// (src/comm/mpi) and TCP (src/comm/tcp) are implementations; the tests have another.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "base/non_copyable.hpp"

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
