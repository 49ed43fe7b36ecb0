// How a rank writes into the memory it shares: through the caches or past them, whichever is faster between the cores on which
// the ranks happen to run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/copy.hpp"

namespace tnt {

// Ranks on hardware threads of one core share its caches, and what one writes the other finds there. Between cores with caches
// of their own a written line has to be taken from the other's cache and given back: three times slower, measured, than to go
// through memory. Which is the case cannot be asked for in a virtual machine, and changes while it runs; so it is measured, in
// two calls of many for each way. A call takes as long as its slowest rank, so all ranks must try the same at once, or none
// would ever see what both could gain: they do, as they make the same calls. The choice is of speed alone, so it does no harm
// if they choose differently.
class StoreTuner {
 public:
  // For the next call, of so many bytes; and whether record() wants to know how long it took. Of small ones few are timed: for
  // them the clock is expensive.
  struct Next {
    Store store;
    bool timed;
  };
  [[nodiscard]] Next next(std::size_t bytes) noexcept;
  void record(std::size_t bytes, std::int64_t ns) noexcept;

 private:
  struct Class {  // of sizes
    std::uint64_t calls = 0;
    Store tried = Store::cached;
    std::array<double, 2> ns_per_byte{};  // of each Store; 0: not known
  };
  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept;
  static constexpr std::size_t n_classes = 5;
  std::array<Class, n_classes> classes_;
};

}  // namespace tnt
