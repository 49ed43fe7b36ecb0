#include "bootstrap/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/log.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/shm/direct_moves.hpp"
#include "comm/shm/domains.hpp"
#include "comm/shm/shm_communicator.hpp"

namespace tnt {
namespace {

// "net:[4026531840]", or "" if the kernel does not say.
std::string read_link(const char* path) {
  std::array<char, 64> text{};
  const ssize_t length = readlink(path, text.data(), text.size());
  return length < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(length));
}

std::string boot_id() {
  std::string boot;
  if (std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot)) return boot;
  std::array<char, 65> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return host.data();
}

// Rank 0 reads it for all ranks. A named file must be valid; an invalid cache file is ignored with a warning.
TuningTable find_tuning(const Settings& settings) {
  if (!settings.tuning.empty()) return read_tuning_file(settings.tuning);
  std::error_code ignored;
  if (settings.tuning_cache.empty() || !std::filesystem::exists(settings.tuning_cache, ignored)) return {};
  try {
    return read_tuning_file(settings.tuning_cache);
  } catch (const Error& error) {
    log(LogLevel::warning, "ignored: {}", error.what());
    return {};
  }
}

std::shared_ptr<Segment> share_segment(const Settings& settings, const std::function<void()>& check) {
  permit_direct_reads();
  FileDescriptor segment;
  if (settings.rank == 0) {
    segment = Segment::create();
    lead_rendezvous(
        settings, segment, [&] { ShmWorld::publish_tuning(segment, find_tuning(settings)); }, check);
  } else {
    segment = join_rendezvous(settings, check);
  }
  return std::make_shared<Segment>(std::move(segment));
}

// local_rank: this rank's number among those of its node.
std::uint32_t domain_of(const Settings& settings, int local_rank) {
  return settings.domain ? static_cast<std::uint32_t>(local_rank / *settings.domain + 1) : find_domain();
}

}  // namespace

std::string node_identity(const Settings& settings) {
  return fmt::format("{} {} {} {}", boot_id(), read_link("/proc/self/ns/net"), read_link("/proc/self/ns/pid"), settings.node);
}

std::shared_ptr<ShmWorld> join_node(const Settings& settings, std::shared_ptr<FlightRecorder> recorder,
                                    const std::function<void()>& check) {
  ShmWorld::check_members(settings.ranks);  // before this rank waits for the others
  return std::make_shared<ShmWorld>(share_segment(settings, check), settings.rank, settings.ranks,
                                    ShmCommunicator::world_bytes(settings.ranks), std::move(recorder),
                                    domain_of(settings, settings.rank));
}

std::shared_ptr<ShmWorld> join_node(const Settings& settings, const std::vector<int>& members, int node,
                                    std::shared_ptr<FlightRecorder> recorder, const std::function<void()>& check) {
  ShmWorld::check_members(static_cast<int>(members.size()));
  Settings local = settings;
  local.rank = static_cast<int>(std::find(members.begin(), members.end(), settings.rank) - members.begin());
  local.ranks = static_cast<int>(members.size());
  local.rendezvous += fmt::format("-{}", node);
  return std::make_shared<ShmWorld>(share_segment(local, check), settings.rank, settings.ranks,
                                    ShmCommunicator::world_bytes(local.ranks), std::move(recorder),
                                    domain_of(settings, local.rank));
}

}  // namespace tnt
