// A group of ranks and the collectives among them, independent of the transport. Calls block, and collectives come from one
// thread at a time; src/comm/executor.hpp makes them asynchronous.
//
// src/comm has the interfaces that all transports share and one folder for each transport: shm, network (with mpi),
// hierarchical, and for devices nccl and staged. Nothing here knows buckets, plans or the C API.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "comm/call.hpp"
#include "common/dtype.hpp"
#include "common/error.hpp"
#include "common/non_copyable.hpp"
#include "kernels/cpu/pack.hpp"

namespace tnt {

// Of a collective; hook: of a bucket, between packing and sending. In the order of phase_names.
enum class Phase : std::uint8_t { pack, wait, reduce, unpack, hook };
inline constexpr std::array<std::string_view, 5> phase_names{"pack", "wait", "reduce", "unpack", "hook"};

// Receives the duration of each phase of a collective, in the order of time.
class PhaseObserver {
 public:
  virtual ~PhaseObserver() = default;
  virtual void phase(Phase phase, std::int64_t begin_ns, std::int64_t end_ns) = 0;
};

// What else needs this process' core while a call waits. A wait beside a computation must not poll all the time; a wait beside
// nothing must not fall asleep.
enum class WaitHint { unknown, computing, idle };

// How far an error of a communicator reaches, and an abort: all communication of the job, or that of this communicator on all
// of its ranks.
enum class ErrorScope { job, communicator };

struct CallContext {
  double timeout;                     // seconds: the deadline of every wait in the call
  std::string_view detail = {};       // for errors: "bucket 3 of gradients: dense/kernel, ..."
  PhaseObserver* observer = nullptr;  // may be null
  WaitHint wait_hint = WaitHint::unknown;
};

// What an all_reduce or a reduce adds up: the fused buffer of the call or its one array, of which only a root gets the sum.
class ReducedTensors : NonCopyable {
 public:
  ReducedTensors(const Collective& call, int rank)
      : array_{.in = call.in,
               .out = call.kind == Call::reduce && call.root != rank ? nullptr : call.out,
               .count = call.count,
               .scale = call.scale.value_or(1.0)},
        alone_({&array_, 1}, call.dtype),
        fused_(call.fused == nullptr ? alone_ : *call.fused) {}
  [[nodiscard]] const FusedBuffer& fused() const noexcept { return fused_; }

 private:
  TensorView array_;
  FusedBuffer alone_;
  const FusedBuffer& fused_;
};

// An all_reduce of these tensors. owners: as in Collective.
[[nodiscard]] inline Collective fused_all_reduce(const FusedBuffer& fused, tnt_op_t op, std::span<const int> owners = {}) {
  Collective call{{.kind = Call::all_reduce, .dtype = fused.dtype(), .op = op, .count = fused.count()}};
  call.fused = &fused;
  call.owners = owners;
  return call;
}

class Communicator : NonCopyable {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int local_rank() const noexcept = 0;
  [[nodiscard]] virtual int local_size() const noexcept = 0;
  [[nodiscard]] virtual const char* transport() const noexcept = 0;
  // Whether collectives defer a cancellation of the thread themselves wherever they sleep (CancellationDeferral), so that
  // short ones need not pay for it.
  [[nodiscard]] virtual bool defers_cancellation() const noexcept { return false; }

  // A collective of tarantella.h, or a message. An all_reduce packs and unpacks a fused buffer as its copies in and out.
  // Reductions are taken in the tree of kernels/cpu/register_sums.hpp over ranks, or over each node's ranks and then over the
  // nodes (hierarchical), and rounded once: the bits do not depend on the size or on the algorithm. Arguments are valid.
  // Messages are independent of the collectives: one thread for each peer and direction may be here with one while another
  // thread is in a collective.
  virtual void run(const Collective& call, const CallContext& context) = 0;

  // nullptr for a negative colour.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) = 0;
  // As split(0, 0), but the duplicate also fails when this communicator fails.
  [[nodiscard]] virtual std::unique_ptr<Communicator> duplicate(const CallContext& context) { return split(0, 0, context); }
  // As duplicate, but with sums in the tree over ranks wherever these are.
  [[nodiscard]] virtual std::unique_ptr<Communicator> duplicate_with_flat_sums(const CallContext& context) {
    return duplicate(context);
  }
  // Called by the members alone, from any thread, also during a collective. members: different ranks, this one among them.
  [[nodiscard]] virtual std::unique_ptr<Communicator> create_group(std::span<const int> members, int tag,
                                                                   const CallContext& context) = 0;

  // Aborts the communication of the whole job, or of this communicator, as the error scope says. Every rank gets the status and
  // message of the first abort.
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  // The error of an abort by any rank, if one is known here; the same on all ranks.
  [[nodiscard]] virtual std::optional<Error> async_error() const noexcept = 0;

  // Communicators that are made of this one afterwards have its scope. All ranks call, between calls. Throws TNT_UNSUPPORTED
  // where an error must end the job.
  [[nodiscard]] virtual ErrorScope error_scope() const noexcept { return ErrorScope::job; }
  virtual void set_error_scope(ErrorScope scope) {
    if (scope == ErrorScope::job) return;
    fail(TNT_UNSUPPORTED,
         "an error of a communicator over {} ends the job, as MPI ends all processes of a job of which one has died: start the "
         "ranks without mpirun and srun, so that they meet by TCP (TNT_RENDEZVOUS=tcp://HOST:PORT)",
         transport());
  }
  // Of members that TCP connects: each one's host, as this rank reaches it. Their errors end all communication over TCP, and
  // those that are alive meet anew (src/bootstrap/reunion.hpp). Empty: they are not connected by TCP.
  [[nodiscard]] virtual std::vector<std::string> hosts() const { return {}; }
  // A communicator of the ranks that are alive, on all of these. Only after an error, and with ErrorScope::communicator.
  [[nodiscard]] virtual std::unique_ptr<Communicator> shrink(const CallContext& /*context*/) {
    fail(TNT_UNSUPPORTED, "a communicator over {} cannot be shrunk", transport());
  }

  // Makes a call that blocks in another thread of this process fail soon. Only before the communicator is destroyed.
  virtual void cancel() noexcept = 0;
};

// Messages from one member of a communicator to another, apart from its collectives.
//
// Threads may send and receive at once, one for each peer and direction.
class MessageChannel : NonCopyable {
 public:
  virtual ~MessageChannel() = default;

  // Returns when `in` may be changed; the message may still be on its way then.
  virtual void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) = 0;
  // A message of another count or dtype than the sender's is TNT_MISMATCH on all ranks.
  virtual void recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) = 0;
};

// Times the phases of a call for its observer.
//
// Costs nothing without an observer.
class Phases {
 public:
  explicit Phases(const CallContext& context) : observer_(context.observer) {
    if (observer_ != nullptr) begin_ = now_ns();
  }
  void end(Phase phase) {
    if (observer_ == nullptr) return;
    const std::int64_t now = now_ns();
    observer_->phase(phase, begin_, now);
    begin_ = now;
  }

 private:
  PhaseObserver* observer_;
  std::int64_t begin_ = 0;
};

}  // namespace tnt
