// What carries messages between the ranks of a job when they share no memory: matched by sender, receiver and tag, in the order
// in which they were sent. MPI is one (src/comm/mpi); the tests have another.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tnt {

// A message on its way. Destroyed before it is done, it is given up: its memory stays alive as long as the network may
// touch it.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  virtual ~Request() = default;

  // True once the message has been received, or the memory of the one that was sent is free again. Never blocks.
  [[nodiscard]] virtual bool test() = 0;
};

// All functions may be called from any thread, at the same time; they throw TNT_SYSTEM.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // for the log: what it is, and how it may be used by threads
  [[nodiscard]] virtual int max_tag() const noexcept = 0;

  // memory: what data lies in. At most max_message_bytes bytes; tags from 0 to max_tag.
  [[nodiscard]] virtual std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                                       std::shared_ptr<void> memory) = 0;
  // bytes: room for the message, which may be shorter.
  [[nodiscard]] virtual std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                                       std::shared_ptr<void> memory) = 0;

  // The job ended in an error: leaving must not wait for ranks that may never come.
  virtual void skip_finalize() noexcept = 0;
};

inline constexpr std::size_t max_message_bytes = std::size_t{1} << 30;

}  // namespace tnt
