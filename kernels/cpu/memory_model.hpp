// The memory of a simulation. Its ranks share one process, so neither the time nor the space of their copies and sums is real:
// a model says how long memory would take, and whether the bytes are moved at all.
#pragma once

#include <cstddef>

#include "common/non_copyable.hpp"

namespace tnt {

class MemoryModel : NonCopyable {
 public:
  virtual ~MemoryModel() = default;

  // Lets the time of so many bytes, read and written, pass for the calling rank. False: the kernel is to touch nothing.
  [[nodiscard]] virtual bool touch(std::size_t bytes) = 0;
};

// Set before any rank starts; null outside of simulations.
inline MemoryModel* memory_model = nullptr;

[[nodiscard]] inline bool touches_memory(std::size_t bytes) { return memory_model == nullptr || memory_model->touch(bytes); }

}  // namespace tnt
