// Times the phases of a call for its observer.
#pragma once

#include "base/clock.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// Costs nothing without an observer.
class Phases {
 public:
  explicit Phases(const CallContext& context) : observer_(context.observer) {
    if (observer_ != nullptr) begin_ = now_ns();
  }
  void end(Phase phase) {
    if (observer_ == nullptr) return;
    const std::int64_t now = now_ns();
    observer_->phase(phase, begin_, now);
    begin_ = now;
  }

 private:
  PhaseObserver* observer_;
  std::int64_t begin_ = 0;
};

}  // namespace tnt
