// all_gather among many ranks. Both algorithms end the handshake before they send data: a rank whose neighbour makes another
// call sends none, and no rank's result is complete without it.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "comm/blocks.hpp"
#include "comm/network/messages/collective_handshake.hpp"
#include "comm/network/messages/exchange.hpp"

namespace tnt {

// Small blocks: log2 n messages from each rank; what a rank has doubles with each. Bruck et al., "Efficient algorithms for
// all-to-all communications in multiport message-passing systems", 1997, section 4.
class BruckAllGather {
 public:
  BruckAllGather(const Messaging& by, const void* in, void* out, const Blocks& blocks)
      : group_(by.group), handshake_(by.handshake), staging_(by.staging), in_(in), out_(out), blocks_(blocks) {}
  void run(const std::function<void()>& finish_handshake);

 private:
  // Bytes before the block of the member `distance` behind this one, in the order that begins with this rank's block.
  [[nodiscard]] std::size_t offset(std::size_t distance) const;

  Group& group_;
  CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const void* in_;
  void* out_;
  const Blocks& blocks_;
};

// Large blocks: each rank receives all blocks from the rank before it and passes them on, in pieces, so each link of a node
// carries them once in each direction, if neighbours are on one node. Straight into the caller's memory, if the network allows.
class RingAllGather {
 public:
  RingAllGather(const Messaging& by, const void* in, void* out, const Blocks& blocks);
  void run(const std::function<void()>& finish_handshake);

 private:
  struct Part {
    std::size_t round;  // that receives it; 0: this rank's own
    std::size_t begin;  // in out
    std::size_t bytes;
  };
  struct Piece {
    Piece(const Part& of, Group& group) : part(of), arrival(group) {}
    Part part;
    BufferSlice data;
    RequestBatch arrival;
  };
  [[nodiscard]] std::optional<Part> next();
  void post(const Part& part);
  void pass_on(Piece& piece);
  void wait_for_sends(std::size_t left);

  Group& group_;
  CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const std::byte* in_;
  std::byte* out_;
  const Blocks& blocks_;
  bool takes_callers_;
  std::size_t round_ = 0;  // of the next part, and its first byte in the block
  std::size_t first_ = 0;
  std::deque<Piece> pieces_;  // that arrive, in their order
  std::deque<RequestBatch> sends_;
};

}  // namespace tnt
