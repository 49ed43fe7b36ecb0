// The common base of recursive doubling and recursive halving: partial sums that go from place to place.
#pragma once

#include "comm/network/collective_handshake.hpp"
#include "comm/network/doubling_places.hpp"
#include "comm/network/exchange.hpp"
#include "comm/network/partial_sums.hpp"
#include "comm/phases.hpp"

namespace tnt {

class TreeAllReduce {
 public:
  TreeAllReduce(Group& group, CollectiveHandshake& handshake, StagingPool& staging, const FusedBuffer& fused, tnt_op_t op,
                Phases& phases)
      : group_(group),
        handshake_(handshake),
        staging_(staging),
        fused_(fused),
        phases_(phases),
        sums_(fused, op, group.size()),
        places_(group.size(), group.self) {}

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
