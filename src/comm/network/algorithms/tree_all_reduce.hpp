// The common base of recursive doubling and recursive halving: partial sums that go from place to place.
#pragma once

#include <bit>
#include <cstddef>
#include <optional>

#include "comm/communicator.hpp"
#include "comm/network/algorithms/partial_sums.hpp"
#include "comm/network/messages/collective_handshake.hpp"
#include "comm/network/messages/exchange.hpp"

namespace tnt {

// The places of a group's members in recursive doubling, with neighbours first: sums are in the tree of register_sums.hpp.
//
// The 2^k members that have a place exchange with the one whose place differs in bit `level`, from level 0 on. The first
// members, n - 2^k pairs, share a place: the second of a pair is folded. It sends its data to the first and gets the result
// from it.
struct DoublingPlaces {
  DoublingPlaces(std::size_t members, std::size_t self)
      : levels(static_cast<std::size_t>(std::bit_width(members)) - 1), pairs(members - std::bit_floor(members)) {
    if (self >= 2 * pairs) {
      place = self - pairs;
    } else if (self % 2 == 0) {
      place = self / 2;
      extra = self + 1;
    } else {
      folded = true;
    }
  }

  [[nodiscard]] std::size_t partner(std::size_t level) const noexcept { return member(place ^ std::size_t{1} << level); }
  [[nodiscard]] std::size_t member(std::size_t at) const noexcept { return at < pairs ? 2 * at : at + pairs; }  // of a place
  [[nodiscard]] bool is_upper(std::size_t level) const noexcept { return (place >> level & 1) != 0; }

  std::size_t levels;
  std::size_t pairs;
  std::size_t place = 0;
  bool folded = false;
  std::optional<std::size_t> extra;  // the folded member of this one's pair
};

class TreeAllReduce {
 public:
  TreeAllReduce(const Messaging& by, const FusedBuffer& fused, tnt_op_t op, Phases& phases)
      : group_(by.group),
        handshake_(by.handshake),
        staging_(by.staging),
        fused_(fused),
        phases_(phases),
        sums_(fused, op, group_.size()),
        places_(group_.size(), group_.self) {}

 protected:
  void wait(RequestBatch& batch) {
    handshake_.wait(batch);
    phases_.end(Phase::wait);
  }

  Group& group_;
  CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const FusedBuffer& fused_;
  Phases& phases_;
  PartialSums sums_;
  DoublingPlaces places_;
};

}  // namespace tnt
