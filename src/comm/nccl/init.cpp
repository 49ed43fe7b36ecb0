#include "comm/nccl/init.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/log.hpp"

namespace tnt {
namespace {

constexpr int multi_rank_gpu_version = 23003;  // first version that supports it
constexpr int deterministic_ctas = 16;         // enough for the full rate of NVLink

// Data that ranks compare before NCCL connects them.
struct PeerSetup {
  Vendor vendor = Vendor::nvidia;
  std::int32_t version = 0;
  std::int32_t deterministic = 0;
  std::int32_t max_ctas = 0;
};

// A rank's GPU, and the version of an NCCL that may connect several ranks on it (NCCL_MULTI_RANK_GPU_ENABLE); 0: none.
struct PeerGpu {
  std::uint64_t host = 0;
  std::int32_t sharing_version = 0;
  std::array<char, 44> bus_id{};  // unique on the host; slices of one GPU (MIG) have the same
};

const char* environment(const char* name) { return std::getenv(name); }  // NOLINT(concurrency-mt-unsafe)

// Identifies hosts as NCCL does; the user may override it.
std::uint64_t host_hash() {
  if (const char* named = environment("NCCL_HOSTID"); named != nullptr && named[0] != '\0') return hash(named);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return hash(std::string(host.data()) + boot);
}

template <typename T>
std::vector<T> gather(Communicator& host, const T& own, double timeout) {
  std::vector<T> all(static_cast<std::size_t>(host.size()));
  host.run({{.kind = Call::all_gather, .count = sizeof(T)}, &own, all.data()},
           {.timeout = timeout, .detail = "agreeing on NCCL"});
  return all;
}

template <std::size_t n>
void write_text(std::array<char, n>& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), n - 1));
}

void compare_options(const PeerSetup& first, const PeerSetup& other, std::size_t rank) {
  const std::string one = nccl_name(other.vendor, other.version);
  const std::string another = nccl_name(first.vendor, first.version);
  if (other.vendor != first.vendor) {
    fail(
        TNT_MISMATCH,
        "rank {} has {} while rank 0 has {}, and devices of two vendors cannot reach each other: give all ranks devices of one "
        "vendor, or set TNT_DEVICE_TRANSPORT=staged",
        rank, one, another);
  }
  if (other.version != first.version) {
    fail(TNT_MISMATCH, "rank {} has {} while rank 0 has {}: install the same one everywhere, or name it in TNT_NCCL_LIBRARY",
         rank, one, another);
  }
  if (other.deterministic != first.deterministic || other.max_ctas != first.max_ctas) {
    fail(TNT_MISMATCH,
         "rank {} asks for NCCL with deterministic={}, max_ctas={} while rank 0 asks for deterministic={}, max_ctas={}: all "
         "ranks must ask for the same",
         rank, other.deterministic, other.max_ctas, first.deterministic, first.max_ctas);
  }
}

// 0: the user has not asked for it, or there is no NCCL.
int sharing_version(const NcclOptions& options, const NcclLibrary* library) {
  const char* const set = environment("NCCL_MULTI_RANK_GPU_ENABLE");
  if (set == nullptr || std::string_view(set) != "1") return 0;
  try {
    return library != nullptr ? library->version() : nccl_library(options.library, options.vendor)->version();
  } catch (const Error&) {  // opening it for the communicator says why
    return 0;
  }
}

}  // namespace

void agree_on_error(Communicator& host, const std::optional<Error>& own, double timeout) {
  struct Outcome {
    std::int32_t status = TNT_SUCCESS;
    std::array<char, 508> message{};
  };
  Outcome outcome;
  if (own) {
    outcome.status = own->status();
    write_text(outcome.message, own->what());
  }
  const std::vector<Outcome> outcomes = gather(host, outcome, timeout);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].status == TNT_SUCCESS) continue;
    fail(static_cast<tnt_status_t>(outcomes[rank].status), "rank {}: {}", rank, outcomes[rank].message.data());
  }
}

std::optional<std::string> find_shared_gpu(Device& device, Communicator& host, const NcclOptions& options,
                                           const NcclLibrary* library) {
  PeerGpu own{.host = host_hash(), .sharing_version = sharing_version(options, library)};
  write_text(own.bus_id, device.bus_id());
  const std::vector<PeerGpu> all = gather(host, own, options.timeout);
  for (std::size_t one = 0; one < all.size(); ++one) {
    for (std::size_t other = one + 1; other < all.size(); ++other) {
      if (all[one].host != all[other].host || all[one].bus_id != all[other].bus_id) continue;
      if (std::min(all[one].sharing_version, all[other].sharing_version) >= multi_rank_gpu_version) continue;
      return fmt::format("ranks {} and {} use the same GPU ({})", one, other, all[one].bus_id.data());
    }
  }
  return std::nullopt;
}

void check_compatible(Communicator& host, const NcclOptions& options, const NcclLibrary& library) {
  const PeerSetup own{.vendor = library.vendor(),
                      .version = library.version(),
                      .deterministic = options.deterministic ? 1 : 0,
                      .max_ctas = options.max_ctas};
  const std::vector<PeerSetup> all = gather(host, own, options.timeout);
  for (std::size_t rank = 1; rank < all.size(); ++rank) compare_options(all[0], all[rank], rank);
}

nccl::ncclConfig_t nccl_config(const NcclOptions& options) {
  constexpr int unset = nccl::undefined_int;
  nccl::ncclConfig_t config{.size = sizeof(config),
                            .magic = nccl::config_magic,
                            .version = nccl::config_version,
                            .blocking = 0,  // connecting can be interrupted
                            .cgaClusterSize = unset,
                            .minCTAs = unset,
                            .maxCTAs = options.max_ctas > 0 ? options.max_ctas : unset,
                            .netName = nullptr,
                            .splitShare = 1,  // a child is this communicator's way to block (NcclCommunicator)
                            .trafficClass = unset,
                            .commName = nullptr,
                            .collnetEnable = unset,
                            .CTAPolicy = unset,
                            .shrinkShare = unset,
                            .nvlsCTAs = unset,
                            .nChannelsPerNetPeer = unset,
                            .nvlinkCentricSched = unset};
  if (options.deterministic) {
    config.maxCTAs = options.max_ctas > 0 ? options.max_ctas : deterministic_ctas;
    config.minCTAs = config.maxCTAs;
    config.collnetEnable = 0;
  }
  return config;
}

void pin_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct Pin {
      const char* name;
      const char* value;
    };
    for (const Pin& pin : {Pin{"NCCL_ALGO", "Ring"}, Pin{"NCCL_PROTO", "Simple"}, Pin{"NCCL_NVLS_ENABLE", "0"}}) {
      const char* set = environment(pin.name);
      if (set != nullptr) log(LogLevel::info, "{}={} is set: not pinned to {}", pin.name, set, pin.value);
      // NOLINTNEXTLINE(concurrency-mt-unsafe): NCCL reads these settings from the environment only
      (void)setenv(pin.name, pin.value, 0);
    }
  });
}

void init_nccl(NcclHandle& handle, Communicator& host, const NcclOptions& options) {
  const NcclLibrary& library = handle.library();
  if (options.deterministic) pin_environment();
  const bool scalable = library->CommInitRankScalable != nullptr && host.size() > options.ranks_per_id;
  const int roots = scalable ? (host.size() + options.ranks_per_id - 1) / options.ranks_per_id : 1;
  std::vector<nccl::ncclUniqueId> ids(static_cast<std::size_t>(roots));
  const auto rank_of = [&](int root) { return static_cast<int>(std::int64_t{root} * host.size() / roots); };

  std::optional<Error> failure;
  for (int root = 0; root < roots; ++root) {
    if (rank_of(root) != host.rank()) continue;
    try {
      TNT_NCCL(library, GetUniqueId, &ids[static_cast<std::size_t>(root)]);
    } catch (const Error& error) {
      failure = error;
    }
  }
  agree_on_error(host, failure, options.timeout);
  for (int root = 0; root < roots; ++root) {
    nccl::ncclUniqueId& id = ids[static_cast<std::size_t>(root)];
    host.run({{.kind = Call::broadcast, .root = rank_of(root), .count = sizeof(id)}, &id, &id},
             {.timeout = options.timeout, .detail = "NCCL's unique id"});
  }
  nccl::ncclConfig_t config = nccl_config(options);
  handle.open("NCCL's initialisation", [&](nccl::ncclComm_t* comm) {
    return scalable ? library->CommInitRankScalable(comm, host.size(), host.rank(), roots, ids.data(), &config)
                    : library->CommInitRankConfig(comm, host.size(), ids.front(), host.rank(), &config);
  });
}

std::shared_ptr<const NcclLibrary> open_nccl(Communicator& host, const NcclOptions& options) {
  std::shared_ptr<const NcclLibrary> library;
  std::optional<Error> failure;
  try {
    library = nccl_library(options.library, options.vendor);
  } catch (const Error& error) {
    failure = error;
  }
  agree_on_error(host, failure, options.timeout);
  return library;
}

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Device& device, Communicator& host, const NcclOptions& options,
                                                           std::shared_ptr<const NcclLibrary> library) {
  if (!library) library = open_nccl(host, options);
  check_compatible(host, options, *library);
  return std::make_unique<NcclCommunicator>(device, host, options, std::move(library), host.rank(),
                                            [&](NcclHandle& handle) { init_nccl(handle, host, options); });
}

}  // namespace tnt
