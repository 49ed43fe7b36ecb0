// Collectives among the ranks of one node through shared memory.
//
// This folder has everything that works on memory that processes share: the segment, the barrier, waiting, peers that die, and
// the algorithms. Networks and devices must not be used here; an abort from another node comes in through RemoteAbortLink.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/blocks.hpp"
#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "comm/group_creation.hpp"
#include "comm/shm/barrier.hpp"
#include "comm/shm/direct_moves.hpp"
#include "comm/shm/ll_buffer.hpp"
#include "comm/shm/mailbox.hpp"
#include "comm/shm/path_tuner.hpp"
#include "comm/shm/peer_monitor.hpp"
#include "comm/shm/region.hpp"
#include "comm/shm/slots.hpp"
#include "comm/shm/store_tuner.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

class ShmCommunicator final : public Communicator {
 public:
  // The job's communicator. The worlds of all ranks have the same segment and were made with world_bytes(ranks).
  explicit ShmCommunicator(const std::shared_ptr<ShmWorld>& world);
  [[nodiscard]] static std::size_t world_bytes(int ranks);
  // The communicator of one node of a larger job. members: the ranks that share the segment, in ascending order; the world was
  // made with world_bytes(members).
  ShmCommunicator(const std::shared_ptr<ShmWorld>& world, std::vector<int> members);

  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(self_); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members()); }
  [[nodiscard]] int local_rank() const noexcept override { return rank(); }
  [[nodiscard]] int local_size() const noexcept override { return size(); }
  [[nodiscard]] const char* transport() const noexcept override { return "shm"; }
  [[nodiscard]] bool defers_cancellation() const noexcept override { return true; }

  void run(const Collective& call, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> create_group(std::span<const int> members, int tag,
                                                           const CallContext& context) override;
  [[nodiscard]] std::unique_ptr<Communicator> duplicate(const CallContext& context) override;
  void abort(tnt_status_t status, const std::string& message) noexcept override { monitor_.abort(status, message); }
  void cancel() noexcept override { monitor_.cancel(); }
  [[nodiscard]] std::optional<Error> async_error() const noexcept override { return monitor_.async_error(); }
  [[nodiscard]] ErrorScope error_scope() const noexcept override { return monitor_.scope(); }
  void set_error_scope(ErrorScope scope) override;
  [[nodiscard]] std::unique_ptr<Communicator> shrink(const CallContext& context) override;

 private:
  ShmCommunicator(std::shared_ptr<ShmWorld> world, std::uint64_t region, std::vector<int> members, std::size_t self);

  [[nodiscard]] std::unique_ptr<ShmCommunicator> make_part(std::span<const int> members, std::uint64_t region) const;
  [[nodiscard]] std::unique_ptr<ShmCommunicator> split_in_memory(int color, int key, const CallContext& context);
  class MoveStore;
  // The kinds, between the begin and the end of the call. Both forms of one, of equal and of uneven blocks, are the same.
  void reduce_tensors(const Collective& call, const CallContext& context);
  void reduce_blocks(const Collective& call);
  void gather_blocks(const Collective& call);
  void scatter(const Collective& call);
  void broadcast(const Collective& call);
  void exchange_blocks(const Collective& call);
  [[nodiscard]] std::size_t compare_counts(const Collective& call);
  // Whether the blocks were moved without the slots. given(member) and taken(member): the memory of this rank's blocks.
  template <typename Given, typename Taken>
  [[nodiscard]] bool move_directly(bool may_be_read, const Given& given, const Taken& taken, std::size_t ahead = 0);

  [[nodiscard]] std::size_t members() const noexcept { return barrier_.members().size(); }

  std::shared_ptr<ShmWorld> world_;
  std::shared_ptr<ShmRegion> region_;  // of the following members, which are destroyed first
  std::size_t self_;
  Tuning tuning_;
  PeerMonitor monitor_;
  ShmBarrier barrier_;
  Slots slots_;
  DirectMoves direct_;
  LLBuffer ll_;
  std::array<PathTuner, Call::all_to_all_v + 1> path_tuners_;    // calls that move blocks
  std::array<StoreTuner, Call::all_to_all_v + 1> store_tuners_;  // all_reduce: into the slots; calls that move blocks: results
  ShmMailbox mailbox_;
  ShmMailbox group_mailbox_;
  GroupIds group_ids_;
};

}  // namespace tnt
