// Chooses how a rank writes shared memory: through the caches or with streaming stores, whichever is faster between the cores
// on which the ranks run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/copy.hpp"

namespace tnt {

// Ranks on hardware threads of one core share its caches, and a rank finds there what another has written. Between cores with
// separate caches, a written line must be fetched from the other cache and returned, which was measured to be three times
// slower than going through memory. A virtual machine does not tell which case applies, and it changes at run time, so both
// kinds of store are timed in a few calls. A call takes as long as its slowest rank. All ranks must therefore try the same kind
// at the same time, which they do because they make the same calls. The choice affects speed only; ranks may choose differently
// without harm.
class StoreTuner {
 public:
  // The kind of store for the next call of so many bytes, and whether record() needs the duration of that call. Few small calls
  // are timed, because reading the clock is expensive for them.
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
    std::array<double, 2> ns_per_byte{};  // by Store; 0: unknown
  };
  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept;
  static constexpr std::size_t n_classes = 5;
  std::array<Class, n_classes> classes_;
};

}  // namespace tnt
