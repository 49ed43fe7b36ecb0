#include "benchmarks/backend.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "benchmarks/mpi_plugin.hpp"

namespace tnt::bench {
namespace {

class OwnBackend final : public Backend {
 public:
  OwnBackend(std::string name, tnt_comm_t comm) : name_(std::move(name)), comm_(comm) {
    check(tnt_comm_rank(comm, &rank_));
    check(tnt_comm_size(comm, &ranks_));
  }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string version() const override { return fmt::format("Tarantella {}", tnt_version()); }
  [[nodiscard]] bool supports(tnt_dtype_t /*dtype*/, tnt_op_t /*op*/) const override { return true; }

  void run(Collective collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
           int root) override {
    switch (collective) {
      case Collective::all_reduce: return check(tnt_all_reduce(comm_, in, out, count, dtype, op, nullptr, nullptr));
      case Collective::reduce_scatter: return check(tnt_reduce_scatter(comm_, in, out, count, dtype, op, nullptr, nullptr));
      case Collective::all_gather: return check(tnt_all_gather(comm_, in, out, count, dtype, nullptr, nullptr));
      case Collective::broadcast: return check(tnt_broadcast(comm_, in, out, count, dtype, root, nullptr, nullptr));
      case Collective::all_to_all: return check(tnt_all_to_all(comm_, in, out, count, dtype, nullptr, nullptr));
      case Collective::sendrecv: return round_the_ring(in, out, count, dtype);
      case Collective::barrier: return check(tnt_barrier(comm_, nullptr, nullptr));
      default: throw Failure(fmt::format("{} is no collective of a communicator", bench::name(collective)));
    }
  }

 private:
  // To the next rank, from the one before. Even ranks send first: somebody always receives.
  void round_the_ring(const void* in, void* out, std::size_t count, tnt_dtype_t dtype) const {
    const auto send = [&] { check(tnt_send(comm_, in, count, dtype, (rank_ + 1) % ranks_, nullptr, nullptr)); };
    if (rank_ % 2 == 0) send();
    check(tnt_recv(comm_, out, count, dtype, (rank_ + ranks_ - 1) % ranks_, nullptr, nullptr));
    if (rank_ % 2 != 0) send();
  }

  std::string name_;
  tnt_comm_t comm_;
  int rank_ = 0;
  int ranks_ = 1;
};

// MPI lives in a library of its own beside this program: what was built against one MPI must not keep this program from
// starting without any.
class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(const MpiFunctions& functions) : functions_(functions) {}
  ~MpiBackend() override { functions_.finalize(); }
  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] std::string version() const override { return functions_.version(); }
  [[nodiscard]] bool supports(tnt_dtype_t dtype, tnt_op_t op) const override {
    return dtype != TNT_FLOAT16 && dtype != TNT_BFLOAT16 && op != TNT_AVG;
  }

  void run(Collective collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
           int root) override {
    const char* error = functions_.run(static_cast<int>(collective), in, out, count, dtype, op, root);
    if (error != nullptr) throw Failure(fmt::format("MPI: {}", error));
  }

 private:
  MpiFunctions functions_;
};

std::string mpi_unavailable(const MpiFunctions& functions, const Team& team) {
  int rank = 0;
  int ranks = 0;
  if (const char* error = functions.init(&rank, &ranks); error != nullptr) return error;
  if (ranks == team.ranks() && rank == team.rank()) return "";
  return fmt::format(
      "MPI sees {} rank{} where there are {}: start tnt-bench with mpirun, or with --ranks where mpirun is "
      "installed",
      ranks, ranks == 1 ? "" : "s", team.ranks());
}

}  // namespace

Found find_own(const std::string& name, const Team& team) {
  const char* transport = nullptr;
  check(tnt_comm_transport(team.comm(), &transport));
  if (name == transport || (name == "shm" && team.ranks() == 1)) return {std::make_unique<OwnBackend>(name, team.comm()), ""};
  if (name == "local") return {nullptr, fmt::format("one rank only, here are {}", team.ranks())};
  if (name == "nccl") return {nullptr, "not available: it needs GPUs"};
  return {nullptr,
          fmt::format("for a run of its own (--backend {}): the ranks of this one are joined over {}", name, transport)};
}

Found find_peer(const std::string& name, const Team& team) {
  if (name != "mpi") return {nullptr, fmt::format("{} is not available on this machine: it needs GPUs", name)};
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libtnt_bench_mpi.so";
  // global: Open MPI's own plug-ins look for its symbols there
  void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
  std::string reason = library == nullptr ? fmt::format("built without MPI, or its library is gone ({})", dlerror()) : "";
  MpiFunctions functions{};
  if (library != nullptr) {
    auto* open = reinterpret_cast<MpiOpen*>(dlsym(library, "tnt_bench_mpi_open"));
    open(&functions);
    reason = mpi_unavailable(functions, team);
  }
  reason = team.first_text(reason);  // all ranks have the peer, or none
  if (!reason.empty()) return {nullptr, reason};
  return {std::make_unique<MpiBackend>(functions), ""};
}

}  // namespace tnt::bench
