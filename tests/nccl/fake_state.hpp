// The state of the fake NCCL: communicators of ranks that are threads of one process, and the tests' settings.
#pragma once

#include <dlfcn.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/abi.hpp"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

using Lock = std::unique_lock<std::mutex>;

namespace nccl = tnt::nccl_abi;

// The arguments that all ranks must pass alike.
struct Signature {
  std::string function;
  std::size_t count = 0;
  nccl::ncclDataType_t type = nccl::ncclInt8;
  int op_or_root = 0;
  int root = 0;  // of a reduction
  bool operator==(const Signature&) const = default;
  [[nodiscard]] std::string text() const;
};

// One collective of a group, from the first device that reaches it until all ranks have its result.
struct PendingCollective {
  Signature signature;
  int arrived = 0;  // devices that have reached it
  int left = 0;
  bool mixed = false;      // ranks called different things
  bool in_window = false;  // the input of the first rank
  std::vector<const void*> inputs;
  std::vector<double> scales;  // of the inputs, of a sum
  std::vector<char> result;
};

// A message of which one side has arrived.
struct PendingMessage {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  bool copied = false;
};

struct Comm;
// The work of one operation on a stream, to be enqueued without holding the mutex.
using Enqueue = std::function<void()>;

// Memory that a communicator knows.
struct Registration {
  long number = 0;
  const char* begin = nullptr;
  std::size_t bytes = 0;
  bool window = false;
  [[nodiscard]] bool has(const void* address) const {
    return static_cast<const char*>(address) >= begin && static_cast<const char*>(address) < begin + bytes;
  }
};

// The ranks of one communicator. Everything is protected by the library's one mutex.
struct Group {
  std::vector<Comm*> members;  // by rank; null until the rank has joined
  // by number: the call of the first rank, and which rank that was
  std::map<std::uint64_t, std::pair<Signature, int>> calls;
  std::map<std::uint64_t, PendingCollective> pending_collectives;  // by number on the devices: a graph may replay a call often
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<PendingMessage>>> sent;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<PendingMessage>>> wanted;
  std::map<std::uint64_t, std::map<int, std::pair<int, int>>> splits;  // by number: rank -> colour, key
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Group>> parts;
  std::map<std::uint64_t, std::map<int, std::size_t>> windows;  // by number: rank -> bytes
  [[nodiscard]] bool complete() const;
  [[nodiscard]] bool dead() const;  // a rank has aborted: no operation completes
};

enum class Life { open, finalized, destroyed, aborted };

// Never freed, so that using it after its end is reported instead of crashing.
struct Comm {
  std::shared_ptr<Group> group;
  void* device = nullptr;  // the simulated device of its operations
  int rank = 0;
  Life life = Life::open;
  bool blocking = false;
  bool shares = false;  // config.splitShare: children share the abort flag
  std::shared_ptr<bool> abort_flag = std::make_shared<bool>(false);
  int inside = 0;       // threads that a call of it holds
  long busy_polls = 0;  // how many more queries return "in progress"
  bool waits_for_members = false;
  nccl::ncclComm_t* split_result = nullptr;  // filled when the split has completed
  std::uint64_t split_number = 0;
  int split_color = 0;
  bool split_blocking = false;
  nccl::ncclResult_t error = nccl::ncclSuccess;
  std::string words;
  Enqueue deferred;               // what a call in progress will enqueue
  long on_the_way = 0;            // operations that have not ended on the device
  long persistent = 0;            // operations in graphs that exist
  std::uint64_t operations = 0;   // of any kind
  std::uint64_t collectives = 0;  // calls
  std::uint64_t device_collectives = 0;
  std::uint64_t splits = 0;
  std::uint64_t windows = 0;
  std::vector<Registration> registrations;
  std::map<int, double> scales;  // of the operations that exist: sums of products
  int operations_made = 0;
  [[nodiscard]] bool ended() const { return life == Life::aborted || *abort_flag; }
  [[nodiscard]] bool in_window(const void* address) const;
};

// A device with room for one operation (co_resident). Operations begin in the order in which they were enqueued.
struct FullDevice {
  std::uint64_t enqueued = 0;
  std::set<std::uint64_t> to_begin;  // by number
  const void* running = nullptr;
};

class State {
 public:
  static State& get();
  std::mutex mutex;
  std::condition_variable changed;

  void reset();
  void set(const std::string& key, int rank, long value) { settings_[{key, rank}] = value; }
  [[nodiscard]] long setting(const std::string& key, int rank, long otherwise = 0) const;
  [[nodiscard]] long version() const { return setting("version", -1, 22809); }
  void counted(const std::string& function) { ++counts_[function]; }
  [[nodiscard]] long count(const std::string& function) const;
  [[nodiscard]] long alive() const;
  void misused(const std::string& what) { misuse = misuse.empty() ? what : misuse; }

  // Whether this call is allowed; misuse is recorded.
  [[nodiscard]] bool usable(nccl::ncclComm_t handle, const char* function);
  [[nodiscard]] Comm& make(const std::shared_ptr<Group>& group, int rank);
  void join(const std::shared_ptr<Group>& group, Comm& comm);

  std::string misuse;
  std::string last_words;                                        // of errors without a communicator
  std::map<std::string, std::shared_ptr<Group>> meeting_places;  // by unique id
  std::uint64_t ids = 0;
  std::map<void*, std::size_t> memory;  // of ncclMemAlloc: bytes
  std::map<void*, FullDevice> full_devices;
  [[nodiscard]] bool registered(const void* address) const;  // with a communicator that was neither destroyed nor aborted

 private:
  State();
  std::map<std::pair<std::string, int>, long> settings_;
  std::map<std::string, long> counts_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

[[nodiscard]] inline Comm* comm_of(nccl::ncclComm_t handle) { return reinterpret_cast<Comm*>(handle); }
[[nodiscard]] inline nccl::ncclComm_t handle_of(Comm& comm) { return reinterpret_cast<nccl::ncclComm_t>(&comm); }

// Blocks inside a call of the communicator until done() or its abort.
template <typename Done>
void block(Comm& comm, Lock& lock, Done&& done) {
  ++comm.inside;
  State::get().changed.wait(lock, [&] { return comm.ended() || done(); });
  --comm.inside;
}

// Sets the asynchronous error of one communicator, unless it has one already.
void fail_later(Comm& comm, nccl::ncclResult_t error, const std::string& words);

[[nodiscard]] std::size_t bytes_of(nccl::ncclDataType_t type);

// A function of support/simulated_stream.h, which the program that holds the devices exports.
template <typename Function>
Function simulated(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

struct Buffers {
  const void* in = nullptr;
  std::size_t in_bytes = 0;
  void* out = nullptr;
  std::size_t out_bytes = 0;
  double scale = 1.0;
};
[[nodiscard]] Enqueue collective(Comm& comm, const Signature& signature, const Buffers& buffers, nccl::ncclStream_t stream);

struct Transfer {
  bool sends = false;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};
[[nodiscard]] Enqueue transfers(Comm& comm, std::vector<Transfer> list, nccl::ncclStream_t stream);

// The result of a collective with all inputs present.
void compute(PendingCollective& pending);

}  // namespace fake
