#include "comm/shm/world.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/rounded_up.hpp"
#include "comm/shm/error_record.hpp"

namespace tnt {
namespace {

std::uint64_t round_up(std::uint64_t bytes) { return rounded_up(bytes, page_size()); }

FileDescriptor open_process(int pid) {
#ifdef SYS_pidfd_open
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
  (void)pid;
  return {};
#endif
}

enum class Presence : std::uint32_t { absent, joined, left };

}  // namespace

// All zero in a new segment: nobody has joined, nothing is allocated, nothing was aborted.
struct ShmWorld::Header {
  struct alignas(64) Rank {
    std::atomic<std::int32_t> pid;
    std::atomic<Presence> presence;
  };

  std::atomic<std::uint64_t> allocated;
  std::uint32_t has_tuning;  // written before the segment is shared
  TuningTable tuning;
  ErrorRecord error;
  std::array<Rank, max_ranks> ranks;
};

std::uint64_t ShmWorld::first_offset() noexcept { return round_up(sizeof(Header)); }

ShmWorld::ShmWorld(std::shared_ptr<Segment> segment, int rank, int ranks, std::size_t first_region,
                   std::shared_ptr<FlightRecorder> recorder)
    : segment_(std::move(segment)),
      recorder_(std::move(recorder)),
      rank_(rank),
      ranks_(ranks),
      first_region_(round_up(first_region)),
      processes_(static_cast<std::size_t>(ranks)) {
  check_ranks(ranks);
  mapping_ = segment_->map(0, sizeof(Header));
  header_ = reinterpret_cast<Header*>(mapping_->data());
  if (header_->has_tuning != 0) tuning_ = header_->tuning;
  Header::Rank& self = header_->ranks[static_cast<std::size_t>(rank_)];
  self.pid.store(getpid());
  self.presence.store(Presence::joined);
}

ShmWorld::~ShmWorld() { header_->ranks[static_cast<std::size_t>(rank_)].presence.store(Presence::left); }

void ShmWorld::check_ranks(int ranks) {
  if (ranks > max_ranks) fail(TNT_UNSUPPORTED, "{} ranks on one node: at most {} are supported", ranks, max_ranks);
}

void ShmWorld::publish_tuning(const FileDescriptor& segment, const TuningTable& tuning) {
  const Mapping mapping(segment, 0, sizeof(Header));
  auto* header = reinterpret_cast<Header*>(mapping.data());
  header->tuning = tuning;
  header->has_tuning = 1;
}

const Tuning& ShmWorld::tuning(std::size_t members) const noexcept { return tuning_.of(members); }

std::uint64_t ShmWorld::allocate(std::size_t bytes) {
  return first_offset() + first_region_ + header_->allocated.fetch_add(round_up(bytes));
}

void ShmWorld::abort(tnt_status_t status, const std::string& message) noexcept {
  if (!remote_abort_link_) return header_->error.write(status, message);
  remote_abort_link_->abort(status, message);
  if (const auto error = remote_abort_link_->async_error()) header_->error.write(error->status(), error->what());
}

std::optional<Error> ShmWorld::async_error() const {
  if (auto error = header_->error.read()) return error;
  if (!remote_abort_link_) return std::nullopt;
  auto error = remote_abort_link_->async_error();
  if (error) header_->error.write(error->status(), error->what());
  return error;
}

int ShmWorld::pid(int rank) const noexcept { return header_->ranks[static_cast<std::size_t>(rank)].pid.load(); }

bool ShmWorld::all_wait(const std::vector<int>& ranks) const {
  return remote_abort_link_ && remote_abort_link_->all_wait(ranks);
}

BackoffPolicy ShmWorld::backoff_policy(const std::vector<int>& members) const {
  std::vector<int> pids;
  pids.reserve(members.size());
  for (const int member : members) pids.push_back(pid(member));
  return backoff_policy_for(pids);
}

ShmWorld::PeerStatus ShmWorld::peer_status(int rank) {
  const Header::Rank& peer = header_->ranks[static_cast<std::size_t>(rank)];
  if (peer.presence.load() == Presence::left) return PeerStatus::left;
  const int process = peer.pid.load();
  if (process == 0 || process == getpid()) return PeerStatus::alive;  // has not joined yet, or is a thread of this process

  const std::scoped_lock lock(mutex_);
  FileDescriptor& watched = processes_[static_cast<std::size_t>(rank)];
  if (!watched) watched = open_process(process);
  if (watched) {
    pollfd ended{watched.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 1 ? PeerStatus::dead : PeerStatus::alive;
  }
  return kill(process, 0) != 0 && errno == ESRCH ? PeerStatus::dead : PeerStatus::alive;
}

}  // namespace tnt
