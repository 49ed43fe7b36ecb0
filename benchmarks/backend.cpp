#include "benchmarks/backend.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>

#include "benchmarks/reference_library.hpp"
#include "benchmarks/shares.hpp"

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
  [[nodiscard]] bool supports(Collective /*collective*/, tnt_dtype_t /*dtype*/, tnt_op_t /*op*/) const override { return true; }

  void run(Collective collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
           int root) override {
    switch (collective) {
      case Collective::all_reduce: return check(tnt_all_reduce(comm_, in, out, count, dtype, op, nullptr, nullptr));
      case Collective::reduce_scatter: return check(tnt_reduce_scatter(comm_, in, out, count, dtype, op, nullptr, nullptr));
      case Collective::all_gather: return check(tnt_all_gather(comm_, in, out, count, dtype, nullptr, nullptr));
      case Collective::broadcast: return check(tnt_broadcast(comm_, in, out, count, dtype, root, nullptr, nullptr));
      case Collective::all_to_all: return check(tnt_all_to_all(comm_, in, out, count, dtype, nullptr, nullptr));
      case Collective::reduce: return check(tnt_reduce(comm_, in, out, count, dtype, op, root, nullptr, nullptr));
      case Collective::gather: return check(tnt_gather(comm_, in, out, count, dtype, root, nullptr, nullptr));
      case Collective::scatter: return check(tnt_scatter(comm_, in, out, count, dtype, root, nullptr, nullptr));
      case Collective::all_gather_v:
        return check(tnt_all_gather_v(comm_, in, out, counts_of(count).sent.data(), dtype, nullptr, nullptr));
      case Collective::reduce_scatter_v:
        return check(tnt_reduce_scatter_v(comm_, in, out, counts_of(count).sent.data(), dtype, op, nullptr, nullptr));
      case Collective::all_to_all_v: {
        const Counts& counts = counts_of(count);
        return check(tnt_all_to_all_v(comm_, in, out, counts.sent.data(), counts.received.data(), dtype, nullptr, nullptr));
      }
      case Collective::sendrecv: return round_the_ring(in, out, count, dtype);
      case Collective::barrier: return check(tnt_barrier(comm_, nullptr, nullptr));
      default: throw Failure(fmt::format("{} is no collective of a communicator", bench::name(collective)));
    }
  }

 private:
  // Of each rank's share.
  struct Counts {
    std::size_t all = 0;
    std::vector<std::size_t> sent{};
    std::vector<std::size_t> received{};
  };

  const Counts& counts_of(std::size_t all) {
    if (counts_.sent.empty() || counts_.all != all) {
      counts_ = {all, shares(all, ranks_), std::vector(static_cast<std::size_t>(ranks_), share(all, ranks_, rank_))};
    }
    return counts_;
  }

  // Sends to the next rank and receives from the previous one. Even ranks send first, so that a receiver always exists.
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
  Counts counts_;  // of the last call
};

// A reference library is a plug-in: this program must start without MPI although a plug-in was built against one.
class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(std::string name, const ReferenceFunctions& functions) : name_(std::move(name)), functions_(functions) {}
  ~ReferenceBackend() override { functions_.finalize(); }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string version() const override { return functions_.version(); }
  [[nodiscard]] bool supports(Collective collective, tnt_dtype_t dtype, tnt_op_t op) const override {
    return functions_.supports(static_cast<int>(collective), dtype, op);
  }

  void run(Collective collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
           int root) override {
    const char* error = functions_.run(static_cast<int>(collective), in, out, count, dtype, op, root);
    if (error != nullptr) throw Failure(fmt::format("{}: {}", name_, error));
  }

 private:
  std::string name_;
  ReferenceFunctions functions_;
};

// A temporary folder in which the reference library's ranks find each other.
class RendezvousFolder {
 public:
  explicit RendezvousFolder(const Team& team) {
    if (team.rank() == 0) {
      std::string made = (std::filesystem::temp_directory_path() / "tnt-bench-XXXXXX").string();
      if (mkdtemp(made.data()) != nullptr) own_ = made;
    }
    name_ = team.first_text(own_);
  }
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;
  ~RendezvousFolder() {
    std::error_code ignored;  // a leftover temporary folder is not an error
    if (!own_.empty()) std::filesystem::remove_all(own_, ignored);
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string own_;
  std::string name_;
};

// In the folder that TNT_INTERNAL_BENCH_PEERS names, else beside this program, else where an installation has it.
std::filesystem::path reference_file(const std::string& name) {
  const std::string file = fmt::format("libtnt_bench_{}.so", name);
  if (const char* named = std::getenv("TNT_INTERNAL_BENCH_PEERS"); named != nullptr && *named != '\0') {
    return std::filesystem::path(named) / file;
  }
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return std::filesystem::exists(here / file) ? here / file : here / TNT_PROGRAM_TO_PEERS / file;
}

// The MPI that has started the ranks is in the process, as the library is joined to them. One rank alone takes any. Its plug-in
// for that MPI does not link it: it has the ABI of several.
std::string mpi_peer() {
  const auto has = [](const char* symbol) { return dlsym(RTLD_DEFAULT, symbol) != nullptr; };
  for (const char* file : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
    if (has("MPI_Init")) break;
    (void)dlopen(file, RTLD_NOW | RTLD_GLOBAL);  // global: MPI's components look for its symbols there
  }
  return has("ompi_mpi_comm_world") ? "mpi_openmpi" : "mpi_mpich";
}

}  // namespace

OpenedBackend open_tarantella(const std::string& name, const Team& team) {
  const char* transport = nullptr;
  check(tnt_comm_transport(team.comm(), &transport));
  if (name.substr(0, name.find(':')) == transport || (name == "shm" && team.ranks() == 1))
    return {std::make_unique<OwnBackend>(name, team.comm()), ""};
  if (name == "local") return {nullptr, fmt::format("one rank only, here are {}", team.ranks())};
  if (name == "nccl") return {nullptr, "not available: it needs GPUs"};
  return {nullptr,
          fmt::format("for a run of its own (--backend {}): the ranks of this one are joined over {}", name, transport)};
}

OpenedBackend open_reference(const std::string& name, const Team& team) {
  if (name == "nccl") return {nullptr, "nccl is not available on this machine: it needs GPUs"};
  const auto file = reference_file(name == "mpi" ? mpi_peer() : name);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string reason = library == nullptr ? fmt::format("built without {}, or its library is gone ({})", name, dlerror()) : "";
  ReferenceFunctions functions{};
  if (library != nullptr) {
    if (auto* open = reinterpret_cast<ReferenceOpen*>(dlsym(library, reference_symbol)); open != nullptr) {
      open(&functions);
    } else {
      reason = fmt::format("{} does not belong to this tnt-bench", file.string());
    }
  }
  reason = team.first_text(reason);  // either all ranks have the library or none
  if (!reason.empty()) return {nullptr, reason};
  const RendezvousFolder rendezvous(team);
  const char* error = functions.init(rendezvous.name().c_str(), team.rank(), team.ranks());
  reason = team.first_text(error == nullptr ? "" : error);
  if (!reason.empty()) return {nullptr, reason};
  return {std::make_unique<ReferenceBackend>(name, functions), ""};
}

}  // namespace tnt::bench
