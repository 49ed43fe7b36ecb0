// What the ranks of a node share beside data: who is alive, whether the job's communication was ended and why, and which
// part of the segment is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file_descriptor.hpp"
#include "comm/shm/segment.hpp"
#include "comm/shm/tuning.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

inline constexpr int max_ranks = 512;

// The rest of a job of which one node's ranks share a world: an ending here is told there, and the other way round.
class RemoteAbortLink {
 public:
  RemoteAbortLink() = default;
  RemoteAbortLink(const RemoteAbortLink&) = delete;
  RemoteAbortLink& operator=(const RemoteAbortLink&) = delete;
  virtual ~RemoteAbortLink() = default;
  virtual void abort(tnt_status_t status, const std::string& message) noexcept = 0;
  [[nodiscard]] virtual std::optional<Error> async_error() noexcept = 0;  // what all of the job say
};

class ShmWorld {
 public:
  // Every rank of the job, each with the same segment, fresh from Segment::create. first_region: bytes for the region whose
  // offset all ranks know without asking, first_offset().
  ShmWorld(std::shared_ptr<Segment> segment, int rank, int ranks, std::size_t first_region);
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;
  ~ShmWorld();  // this rank has left; says so to the others

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Segment& segment() const noexcept { return *segment_; }

  // Writes the table that all ranks take into a fresh segment, before any rank makes its world of it: the ranks must not
  // differ in what they choose. Unless this is called, all take the default.
  static void publish_tuning(const FileDescriptor& segment, const TuningTable& tuning);
  [[nodiscard]] const Tuning& tuning(std::size_t members) const noexcept;

  [[nodiscard]] static std::uint64_t first_offset() noexcept;
  // Offset of so many zero bytes that nobody else has, on a page border.
  [[nodiscard]] std::uint64_t allocate(std::size_t bytes);

  // Ends the job's communication. The first message wins; every rank's check throws it.
  void abort(tnt_status_t status, const std::string& message) noexcept;
  [[nodiscard]] std::optional<Error> async_error() const;
  void set_remote_abort_link(std::shared_ptr<RemoteAbortLink> link) {
    remote_abort_link_ = std::move(link);
  }  // before the first collective

  enum class PeerStatus { alive, left, dead };
  [[nodiscard]] PeerStatus peer_status(int rank);  // from any thread
  [[nodiscard]] int pid(int rank) const noexcept;
  // How these ranks wait for one another. Of members that have not joined yet nothing is known: better asked again after a call
  // in which all took part.
  [[nodiscard]] BackoffPolicy backoff_policy(const std::vector<int>& members) const;

 private:
  struct Header;
  void write_abort(tnt_status_t status, const std::string& message) const noexcept;

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Mapping> mapping_;
  Header* header_;
  TuningTable tuning_;
  std::shared_ptr<RemoteAbortLink> remote_abort_link_;
  int rank_;
  int ranks_;
  std::size_t first_region_;
  std::mutex mutex_;
  std::vector<FileDescriptor> processes_;  // a pidfd of each peer, opened when it is first asked about
};

}  // namespace tnt
