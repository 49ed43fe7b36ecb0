// Ranks of a communicator over TCP that are left after an error, and make a communicator of those that are alive.
//
// An error ends all connections of a job. The ranks prepare for it while all is well: each opens a listener, all learn its
// address, and rank 0 draws a secret. The listener stays the same for the communicators that come of one another, so ranks that
// have the smaller communicator already meet those that lost it before it was complete.
#pragma once

#include <memory>
#include <vector>

#include "base/settings.hpp"
#include "bootstrap/join.hpp"
#include "comm/communicator.hpp"

namespace tnt {

struct ReunionPlaces;

// Of one communicator.
class Reunion {
 public:
  // Collective. of: with hosts. Throws as its collectives do.
  Reunion(Communicator& of, const CallContext& context);
  ~Reunion();

  struct Result {
    JoinedJob job;  // of the ranks that are alive, in their order
    int rank = 0;   // of this process there
    std::unique_ptr<Reunion> next;
  };
  // All ranks that are alive call, once: TNT_INVALID_ARGUMENT afterwards. settings.join_seconds(): the deadline, which begins
  // anew if a rank is lost while the others meet, once altogether. Throws as ReunionRound::run and join_network.
  [[nodiscard]] Result meet(Settings settings);

 private:
  Reunion(std::shared_ptr<const ReunionPlaces> places, std::vector<int> members);

  std::shared_ptr<const ReunionPlaces> places_;
  std::vector<int> members_;  // ranks in places_, ascending
  bool has_met_ = false;
};

}  // namespace tnt
