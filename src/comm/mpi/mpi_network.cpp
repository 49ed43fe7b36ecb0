#include "comm/mpi/mpi_network.hpp"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/plugin.hpp"
#include "base/thread.hpp"
#include "comm/mpi/mpi_session.hpp"
#include "comm/mpi/plugin.hpp"

namespace tnt {

// The communicator, and a lock if MPI does not support concurrent calls.
class MpiNetwork::Channel {
 public:
  // given: null for MPI_COMM_WORLD.
  Channel(bool serialized, const void* given, double seconds) : serialized_(serialized) {
    if (given == nullptr) {
      TNT_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    } else {
      duplicate(*static_cast<const MPI_Comm*>(given), seconds);
    }
    TNT_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  }

  // Calls MPI. Throws TNT_SYSTEM after MPI_Finalize and after close().
  template <typename Body>
  void use(Body&& body) {
    const Counted inside(callers_);
    if (closed_) fail(TNT_SYSTEM, "MPI is not called any more after an abort");
    std::optional<std::scoped_lock<std::mutex>> lock;
    if (serialized_) lock.emplace(mutex_);
    int finalized = 0;
    TNT_MPI(MPI_Finalized(&finalized));
    if (finalized != 0) fail(TNT_SYSTEM, "MPI was finalized before tnt_finalize: call MPI_Finalize after it");
    body();
  }

  // MPI touches the memory of messages only while a thread calls it. A network adapter may end a transfer that it has begun; it
  // gets the time for that.
  void close() noexcept {
    closed_ = true;
    while (callers_ > 0) std::this_thread::yield();
    std::this_thread::sleep_for(adapters_time);
  }

  // Keeps the memory of a cancelled request, which MPI may still access.
  void keep(MPI_Request handle, std::shared_ptr<void> memory) {
    const std::scoped_lock lock(orphans_mutex_);
    std::erase_if(orphans_, [&](Orphan& orphan) { return arrived(orphan.handle); });
    if (!arrived(handle)) orphans_.push_back({handle, std::move(memory)});
  }

  // Requests that are still pending keep their memory until the process ends.
  void abandon() {
    const std::scoped_lock lock(orphans_mutex_);
    std::erase_if(orphans_, [&](Orphan& orphan) { return arrived(orphan.handle); });
    if (!orphans_.empty()) (void)new std::vector<Orphan>(std::move(orphans_));
  }

  MPI_Comm comm = MPI_COMM_NULL;

 private:
  struct Orphan {
    MPI_Request handle;
    std::shared_ptr<void> memory;
  };
  // Ends at a deadline, because another process of the communicator may never come.
  void duplicate(MPI_Comm of, double seconds) {
    if (of == MPI_COMM_NULL) {
      fail(TNT_INVALID_ARGUMENT, "options->mpi_comm is MPI_COMM_NULL: processes that are not in it do not call tnt_init");
    }
    int inter = 0;
    TNT_MPI(MPI_Comm_test_inter(of, &inter));
    if (inter != 0) fail(TNT_INVALID_ARGUMENT, "options->mpi_comm is an intercommunicator: merge it (MPI_Intercomm_merge)");
    int size = 0;
    TNT_MPI(MPI_Comm_size(of, &size));
    static std::list<MPI_Comm> made;  // MPI may write to it after the deadline
    MPI_Comm& copy = made.emplace_back(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    TNT_MPI(MPI_Comm_idup(of, &copy, &request));
    int done = 0;
    for (const Deadline deadline(seconds); done == 0;) {
      TNT_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done == 0 && deadline.passed()) {
        fail(TNT_TIMEOUT, "not all {} processes of options->mpi_comm have called tnt_init within {} s", size, seconds);
      }
      if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    comm = copy;
  }

  bool arrived(MPI_Request& handle) noexcept {
    int done = 0;
    try {
      use([&] { TNT_MPI(MPI_Test(&handle, &done, MPI_STATUS_IGNORE)); });
    } catch (const Error&) {  // the owner has cancelled the request and needs no error
    }
    return done != 0;
  }

  static constexpr std::chrono::milliseconds adapters_time{20};

  bool serialized_;
  std::atomic<int> callers_{0};
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::mutex orphans_mutex_;
  std::vector<Orphan> orphans_;
};

class MpiNetwork::MpiRequest final : public Request {
 public:
  MpiRequest(std::shared_ptr<Channel> channel, std::shared_ptr<void> memory, bool incoming)
      : channel_(std::move(channel)), memory_(std::move(memory)), incoming_(incoming) {}

  ~MpiRequest() override {
    if (handle == MPI_REQUEST_NULL) return;
    try {
      if (incoming_) channel_->use([&] { TNT_MPI(MPI_Cancel(&handle)); });  // MPI cannot cancel a send
    } catch (const Error&) {                                                // the request is then kept
    }
    channel_->keep(handle, std::move(memory_));
  }

  [[nodiscard]] bool test() override {
    if (handle == MPI_REQUEST_NULL) return true;
    int done = 0;
    channel_->use([&] { TNT_MPI(MPI_Test(&handle, &done, MPI_STATUS_IGNORE)); });
    return done != 0;
  }

  MPI_Request handle = MPI_REQUEST_NULL;

 private:
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<void> memory_;
  bool incoming_;
};

// On a duplicate of MPI_COMM_WORLD, which is not freed: MPI would wait for other ranks.
class MpiNetwork::MpiCollectives final : public NativeCollectives {
 public:
  MpiCollectives(std::shared_ptr<Channel> channel, MPI_Comm comm) : channel_(std::move(channel)), comm_(comm) {}

  // MPI has no 16-bit floats and no mean. Its smallest and largest of floats say nothing about NaN.
  [[nodiscard]] bool reduces(tnt_dtype_t dtype, tnt_op_t op) const noexcept override {
    const bool exact = op == TNT_SUM || op == TNT_PROD || (dtype != TNT_FLOAT32 && dtype != TNT_FLOAT64);
    return type_of(dtype) != MPI_DATATYPE_NULL && op_of(op) != MPI_OP_NULL && exact;
  }

  [[nodiscard]] std::unique_ptr<Request> all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                    tnt_op_t op, std::shared_ptr<void> memory) override {
    return start(std::move(memory), [&](MPI_Request* request) {
      TNT_MPI(MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, static_cast<int>(count), type_of(dtype), op_of(op), comm_,
                             request));
    });
  }
  [[nodiscard]] std::unique_ptr<Request> reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                                        tnt_op_t op, std::shared_ptr<void> memory) override {
    return start(std::move(memory), [&](MPI_Request* request) {
      TNT_MPI(MPI_Ireduce_scatter_block(in, out, static_cast<int>(count), type_of(dtype), op_of(op), comm_, request));
    });
  }
  [[nodiscard]] std::unique_ptr<Request> all_gather(const void* in, void* out, std::size_t bytes,
                                                    std::shared_ptr<void> memory) override {
    int rank = 0;
    TNT_MPI(MPI_Comm_rank(comm_, &rank));
    const bool in_place = in == static_cast<std::byte*>(out) + static_cast<std::size_t>(rank) * bytes;
    return start(std::move(memory), [&](MPI_Request* request) {
      TNT_MPI(MPI_Iallgather(in_place ? MPI_IN_PLACE : in, static_cast<int>(bytes), MPI_BYTE, out, static_cast<int>(bytes),
                             MPI_BYTE, comm_, request));
    });
  }
  [[nodiscard]] std::unique_ptr<Request> duplicate(std::shared_ptr<NativeCollectives>& copy) override {
    const auto made = std::make_shared<MpiCollectives>(channel_, MPI_COMM_NULL);
    copy = made;  // also the memory that MPI writes the new communicator to
    return start(made, [&](MPI_Request* request) { TNT_MPI(MPI_Comm_idup(comm_, &made->comm_, request)); });
  }

 private:
  static MPI_Datatype type_of(tnt_dtype_t dtype) noexcept {
    switch (dtype) {
      case TNT_FLOAT32: return MPI_FLOAT;
      case TNT_FLOAT64: return MPI_DOUBLE;
      case TNT_INT8: return MPI_INT8_T;
      case TNT_UINT8: return MPI_UINT8_T;
      case TNT_INT32: return MPI_INT32_T;
      case TNT_INT64: return MPI_INT64_T;
      case TNT_UINT32: return MPI_UINT32_T;
      case TNT_UINT64: return MPI_UINT64_T;
      default: return MPI_DATATYPE_NULL;
    }
  }
  static MPI_Op op_of(tnt_op_t op) noexcept {
    switch (op) {
      case TNT_SUM: return MPI_SUM;
      case TNT_PROD: return MPI_PROD;
      case TNT_MIN: return MPI_MIN;
      case TNT_MAX: return MPI_MAX;
      case TNT_LAND: return MPI_LAND;
      case TNT_LOR: return MPI_LOR;
      case TNT_LXOR: return MPI_LXOR;
      case TNT_BAND: return MPI_BAND;
      case TNT_BOR: return MPI_BOR;
      case TNT_BXOR: return MPI_BXOR;
      default: return MPI_OP_NULL;
    }
  }
  template <typename Start>
  [[nodiscard]] std::unique_ptr<Request> start(std::shared_ptr<void> memory, const Start& begin) {
    auto request = std::make_unique<MpiRequest>(channel_, std::move(memory), false);
    channel_->use([&] { begin(&request->handle); });  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): MpiRequest waits
    return request;
  }

  std::shared_ptr<Channel> channel_;
  MPI_Comm comm_;
};

MpiNetwork::MpiNetwork(const void* comm, double seconds)
    : session_(comm != nullptr), channel_(std::make_shared<Channel>(session_.serialized(), comm, seconds)) {
  TNT_MPI(MPI_Comm_rank(channel_->comm, &rank_));
  TNT_MPI(MPI_Comm_size(channel_->comm, &size_));
  int* last = nullptr;
  int known = 0;
  TNT_MPI(MPI_Comm_get_attr(channel_->comm, MPI_TAG_UB, static_cast<void*>(&last), &known));
  if (known != 0) max_tag_ = *last;
  // Collectives and messages of one communicator do not meet in MPI.
  collectives_ = std::make_shared<MpiCollectives>(channel_, channel_->comm);
}

std::shared_ptr<NativeCollectives> MpiNetwork::native_collectives() { return collectives_; }

// Open MPI's shared memory sends 4096 bytes at once, its own header included. Measured with Open MPI 4.1: 1.3 us up to 4040
// bytes, 3.3 us from 4064 on (the receiver reads the sender's memory by a system call).
std::size_t MpiNetwork::unasked_bytes() const noexcept {
#ifdef OPEN_MPI
  return 4032;
#else
  return 0;
#endif
}

// Open MPI does where it sees more ranks than cores, or is told so. The variable is not part of its interface; without it
// nothing is known.
bool MpiNetwork::test_yields() const noexcept {
#ifdef OPEN_MPI
  static const auto* const yields = static_cast<const bool*>(dlsym(RTLD_DEFAULT, "opal_progress_yield_when_idle"));
  return yields != nullptr && *yields;
#else
  return false;
#endif
}

// Does not free the communicator, because MPI would wait for other ranks, and tnt_finalize must not.
MpiNetwork::~MpiNetwork() { channel_->abandon(); }

void MpiNetwork::close() noexcept {
  MpiSession::skip_finalize();
  channel_->close();
}

void MpiNetwork::skip_finalize() noexcept { MpiSession::skip_finalize(); }

std::unique_ptr<Request> MpiNetwork::isend(const void* data, std::size_t bytes, int to, int tag, std::shared_ptr<void> memory) {
  auto request = std::make_unique<MpiRequest>(channel_, std::move(memory), false);
  channel_->use(  // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): MpiRequest waits
      [&] { TNT_MPI(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, channel_->comm, &request->handle)); });
  return request;
}

std::unique_ptr<Request> MpiNetwork::irecv(void* data, std::size_t bytes, int from, int tag, std::shared_ptr<void> memory) {
  auto request = std::make_unique<MpiRequest>(channel_, std::move(memory), true);
  const int source = from == any_rank ? MPI_ANY_SOURCE : from;
  channel_->use(  // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): MpiRequest waits
      [&] { TNT_MPI(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, tag, channel_->comm, &request->handle)); });
  return request;
}

namespace {

Network* open(const void* comm, double seconds, tnt_status_t* status, std::string* message) {
  return without_throwing<Network*>(nullptr, status, message, [&] { return new MpiNetwork(comm, seconds); });
}

constexpr MpiPlugin plugin{TNT_VERSION_TEXT, open};

}  // namespace

}  // namespace tnt

extern "C" TNT_EXPORT const tnt::MpiPlugin* tnt_mpi_plugin() { return &tnt::plugin; }
