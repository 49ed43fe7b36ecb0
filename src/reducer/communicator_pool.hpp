// The communicators of reducers: duplicates of one communicator, each for one plan at a time. A reducer that ends gives its own
// back, so a job with many models, one after another, needs no more shared memory than with one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

#include "comm/communicator.hpp"

namespace tnt {

class CommunicatorPool {
 public:
  // flat_sums: as for Communicator::duplicate_with_flat_sums.
  explicit CommunicatorPool(bool flat_sums) noexcept : flat_sums_(flat_sums) {}

  struct Taken {
    std::unique_ptr<Communicator> communicator;
    std::size_t index;  // for give_back()
  };
  // Collective on the communicator, which is the same in all calls. Takes one that all ranks have given back, else a new one.
  [[nodiscard]] Taken take(Communicator& from, const CallContext& call);
  // Not collective. The communicator must not be in a call.
  void give_back(Taken taken);

 private:
  static constexpr std::size_t max_spare = 64;

  const bool flat_sums_;
  std::mutex mutex_;
  std::size_t made_ = 0;
  std::array<std::unique_ptr<Communicator>, max_spare> spare_;  // by index; null: in use, or not made yet
};

}  // namespace tnt
