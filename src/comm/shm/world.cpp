#include "comm/shm/world.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "comm/shm/error_record.hpp"

namespace tnt {
namespace {

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
    std::atomic<std::uint32_t> domain;
  };

  ErrorRecord error;
  std::array<Rank, max_job_ranks> ranks;
  std::atomic<std::uint64_t> allocated;
  TuningTable tuning;
  std::array<std::atomic<std::uint64_t>, max_free> free;  // FreeRegion, 0: none
  std::uint32_t has_tuning;                               // written before the segment is shared
  std::atomic<std::uint32_t> free_places;                 // of `free` that were ever used: a look stops there
};

namespace {

// Memory of communicators that were destroyed, in one word, so that a rank that is killed leaves no lock behind: its number for
// the next life, and above it its size in pages.
struct FreeRegion {
  static constexpr int number_bits = 42;  // of Segment's addresses
  static constexpr std::uint64_t max_pages = (std::uint64_t{1} << (64 - number_bits)) - 1;
  static std::uint64_t word(std::uint64_t number, std::uint64_t pages) noexcept { return pages << number_bits | number; }
  static std::uint64_t pages(std::uint64_t word) noexcept { return word >> number_bits; }
  static std::uint64_t number(std::uint64_t word) noexcept { return word & ((std::uint64_t{1} << number_bits) - 1); }
};

}  // namespace

std::uint64_t ShmWorld::first_offset() noexcept { return whole_pages(sizeof(Header)); }

ShmWorld::ShmWorld(std::shared_ptr<Segment> segment, int rank, int ranks, std::size_t first_region,
                   std::shared_ptr<FlightRecorder> recorder, std::uint32_t domain)
    : segment_(std::move(segment)),
      recorder_(std::move(recorder)),
      rank_(rank),
      ranks_(ranks),
      first_region_(whole_pages(first_region)),
      processes_(static_cast<std::size_t>(ranks)) {
  if (ranks > max_job_ranks) {
    fail(TNT_UNSUPPORTED, "a job of {} ranks: at most {} are supported; use TNT_TRANSPORT=tcp or mpi", ranks, max_job_ranks);
  }
  mapping_ = segment_->map(0, sizeof(Header));
  header_ = reinterpret_cast<Header*>(mapping_->data());
  if (header_->has_tuning != 0) tuning_ = header_->tuning;
  Header::Rank& self = header_->ranks[static_cast<std::size_t>(rank_)];
  self.domain.store(domain);
  self.pid.store(getpid());
  self.presence.store(Presence::joined);
}

ShmWorld::~ShmWorld() { header_->ranks[static_cast<std::size_t>(rank_)].presence.store(Presence::left); }

void ShmWorld::check_members(int members) {
  if (members > max_ranks) {
    fail(TNT_UNSUPPORTED,
         "{} ranks on one node: its shared memory takes {} at most; use TNT_TRANSPORT=tcp or mpi, or more nodes", members,
         max_ranks);
  }
}

void ShmWorld::publish_tuning(const FileDescriptor& segment, const TuningTable& tuning) {
  const Mapping mapping(segment, 0, sizeof(Header));
  auto* header = reinterpret_cast<Header*>(mapping.data());
  header->tuning = tuning;
  header->has_tuning = 1;
}

const Tuning& ShmWorld::tuning(std::size_t members) const noexcept { return tuning_.of(members); }

std::uint64_t ShmWorld::allocate(std::size_t bytes) {
  const std::uint64_t pages = whole_pages(bytes) / page_size();
  for (std::atomic<std::uint64_t>& place : std::span(header_->free).first(header_->free_places.load())) {
    std::uint64_t word = place.load();
    if (FreeRegion::pages(word) == pages && pages > 0 && place.compare_exchange_strong(word, 0))
      return FreeRegion::number(word);
  }
  return first_offset() + first_region_ + header_->allocated.fetch_add(whole_pages(bytes));
}

void ShmWorld::free(std::uint64_t number, std::size_t bytes) noexcept {
  const std::uint64_t pages = whole_pages(bytes) / page_size();
  if (!segment_->discard(offset_of(number), bytes) || pages > FreeRegion::max_pages) return;  // it must be zero when it is used
  const std::uint64_t word = FreeRegion::word(offset_of(number) + (number + 1) % page_size(), pages);
  for (std::uint32_t place = 0; place < max_free; ++place) {
    std::uint64_t none = 0;
    if (header_->free[place].load() != 0 || !header_->free[place].compare_exchange_strong(none, word)) continue;
    std::uint32_t used = header_->free_places.load();
    while (used <= place && !header_->free_places.compare_exchange_weak(used, place + 1)) continue;
    return;
  }
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

std::vector<std::uint32_t> ShmWorld::domains(const std::vector<int>& ranks) const {
  std::vector<std::uint32_t> result;
  result.reserve(ranks.size());
  for (const int rank : ranks) result.push_back(header_->ranks[static_cast<std::size_t>(rank)].domain.load());
  return result;
}

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
