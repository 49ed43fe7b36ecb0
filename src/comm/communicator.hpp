// A group of ranks and the collectives among them, whatever carries them. Calls block; collectives come from one thread at a
// time: src/comm/executor.hpp makes them asynchronous, src/api hands them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "kernels/cpu/pack.hpp"

namespace tnt {

// Is told how long each part of a collective took; spans come in order of time.
class PhaseObserver {
 public:
  virtual ~PhaseObserver() = default;
  virtual void phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns) = 0;
};

// What else of this process wants its core while a call waits for others. One that keeps a computation waiting must not look
// about all the time; one that keeps nothing waiting had better not fall asleep.
enum class WaitHint { unknown, computing, idle };

struct CallContext {
  double timeout;                     // seconds: the deadline of every wait inside the call
  std::string_view detail = {};       // for errors: "bucket 3 of gradients: dense/kernel, ..."
  PhaseObserver* observer = nullptr;  // may be null
  WaitHint wait_hint = WaitHint::unknown;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int local_rank() const noexcept = 0;
  [[nodiscard]] virtual int local_size() const noexcept = 0;
  [[nodiscard]] virtual const char* transport() const noexcept = 0;

  // The collectives of tarantella.h. all_reduce takes its data in pieces: pack and unpack are its copies in and out. It
  // takes tree_sum as well, to the same bits over every transport.
  virtual void all_reduce(const FusedBuffer& fused, tnt_op_t op, const CallContext& context) = 0;
  virtual void reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                              const CallContext& context) = 0;
  virtual void all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const CallContext& context) = 0;
  virtual void broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                         const CallContext& context) = 0;
  virtual void all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, const CallContext& context) = 0;
  virtual void barrier(const CallContext& context) = 0;

  // Apart from the collectives: one thread for each peer and direction may be in these while another is in a collective.
  virtual void send(const void* in, std::size_t count, tnt_dtype_t dtype, int to, const CallContext& context) = 0;
  virtual void recv(void* out, std::size_t count, tnt_dtype_t dtype, int from, const CallContext& context) = 0;

  // nullptr for a negative colour.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) = 0;

  // Ends the communication of the whole job; the first caller's status and message are what every rank gets.
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  // What ended it, by any rank, as far as is known here: the same on all ranks.
  [[nodiscard]] virtual std::optional<Error> async_error() const noexcept = 0;

  // Makes a call that blocks in another thread of this process give up soon; for the end of the communicator's life only.
  virtual void cancel() noexcept = 0;
};

}  // namespace tnt
