// Shared state of the ranks of a node beside data: who is alive, whether the job was aborted and why, and which part of the
// segment is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/shm/segment.hpp"
#include "comm/shm/tuning.hpp"
#include "comm/shm/wait.hpp"
#include "common/error.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// How many ranks one node can have, and a job with shared memory inside of its nodes.
inline constexpr int max_ranks = 512;
inline constexpr int max_job_ranks = 4096;

// The connection of a node's world to the rest of the job. It carries aborts in both directions. Only ranks that wait call it.
class RemoteAbortLink : NonCopyable {
 public:
  virtual ~RemoteAbortLink() = default;
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  [[nodiscard]] virtual std::optional<Error> async_error() noexcept = 0;   // the error that all ranks of the job report
  [[nodiscard]] virtual bool all_wait(const std::vector<int>& ranks) = 0;  // whether each of them waits for others itself
};

class ShmWorld {
 public:
  // Every rank of the job makes one, with the same segment fresh from Segment::create. first_region: bytes of the region at
  // first_offset(), whose offset all ranks know. recorder: gets the calls of the communicators; may be null. domain: this
  // rank's (domains.hpp).
  ShmWorld(std::shared_ptr<Segment> segment, int rank, int ranks, std::size_t first_region,
           std::shared_ptr<FlightRecorder> recorder = nullptr, std::uint32_t domain = 0);
  ~ShmWorld();  // tells the other ranks that this rank has left

  // Throws TNT_UNSUPPORTED if a node cannot have so many ranks, that is, if a communicator in its memory cannot.
  static void check_members(int members);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Segment& segment() const noexcept { return *segment_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }

  // Writes the tuning table into a new segment before any rank makes its world, because all ranks must make the same choices.
  // Without this call, all ranks use the defaults.
  static void publish_tuning(const FileDescriptor& segment, const TuningTable& tuning);
  [[nodiscard]] const Tuning& tuning(std::size_t members) const noexcept;

  [[nodiscard]] static std::uint64_t first_offset() noexcept;
  // The number of so many zero bytes that are reserved for the caller. Memory that is used again has another number each time,
  // as long as it is not used more often than a page has bytes.
  [[nodiscard]] std::uint64_t allocate(std::size_t bytes);
  // Where they lie: on a page border.
  [[nodiscard]] static std::uint64_t offset_of(std::uint64_t number) noexcept { return number / page_size() * page_size(); }
  // By one rank, when none uses them any more. bytes: as for allocate.
  void free(std::uint64_t number, std::size_t bytes) noexcept;
  static constexpr std::size_t max_free = 4096;  // regions that are kept for reuse; more are lost for the life of the job

  // Aborts the job. The first message wins; the checks of every rank throw it.
  void abort(tnt_status_t status, const std::string& message) noexcept;
  [[nodiscard]] std::optional<Error> async_error() const;
  void set_remote_abort_link(std::shared_ptr<RemoteAbortLink> link) {
    remote_abort_link_ = std::move(link);
  }  // before the first collective

  enum class PeerStatus { alive, left, dead };
  [[nodiscard]] PeerStatus peer_status(int rank);  // from any thread
  [[nodiscard]] int pid(int rank) const noexcept;
  // The domain of each of these ranks, the same on all of them. Only when they have joined, that is, after a collective.
  [[nodiscard]] std::vector<std::uint32_t> domains(const std::vector<int>& ranks) const;
  // Whether each of the ranks says that it waits itself, perhaps for another node. Takes up to 0.25 s; for a deadline.
  [[nodiscard]] bool all_wait(const std::vector<int>& ranks) const;
  // How these ranks wait for one another. Nothing is known of members that have not joined yet, so ask again after a
  // collective.
  [[nodiscard]] BackoffPolicy backoff_policy(const std::vector<int>& members) const;

 private:
  struct Header;

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Mapping> mapping_;
  Header* header_;
  TuningTable tuning_;
  std::shared_ptr<RemoteAbortLink> remote_abort_link_;
  std::shared_ptr<FlightRecorder> recorder_;
  int rank_;
  int ranks_;
  std::size_t first_region_;
  std::mutex mutex_;
  std::vector<FileDescriptor> processes_;  // a pidfd of each peer, opened on the first query
};

}  // namespace tnt
