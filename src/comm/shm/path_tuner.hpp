// Chooses how the blocks of a call move: read where they lie in another rank's memory, or through shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tnt {

enum class Path : std::uint8_t { direct, slots };

// A direct read makes one copy and needs three barriers. The slots take two copies, of which all ranks make their parts at the
// same time, and which are cheap between cores that share a cache. Which one is faster depends on cores, their caches, and the
// number of ranks to a core, and changes at run time, so both are timed in a few calls of each kind and size. All ranks must
// take the same path. So they make their trials in the same calls, and decide together by the times of all.
class PathTuner {
 public:
  struct Next {
    Path path;
    bool timed;    // record() wants the duration of the call
    bool decides;  // before the call: all ranks add up their times(), call decide(), and take best()
  };
  // The same on all ranks, as they make the same calls. bytes: of the largest block.
  [[nodiscard]] Next next(std::size_t bytes) noexcept;
  void record(std::size_t bytes, Path path, std::int64_t ns) noexcept;

  using Times = std::array<std::int64_t, 2>;  // by Path
  // The shortest of the last trials on this rank: a disturbance never makes a call shorter.
  [[nodiscard]] Times times(std::size_t bytes) const noexcept { return classes_[class_of(bytes)].shortest; }
  // of_all: sums over the ranks.
  void decide(std::size_t bytes, const Times& of_all) noexcept;
  [[nodiscard]] Path best(std::size_t bytes) const noexcept { return classes_[class_of(bytes)].best; }

 private:
  struct Class {  // of sizes
    std::uint64_t calls = 0;
    Times shortest{};
    Path best = Path::direct;
  };
  static constexpr std::size_t n_classes = 14;
  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept;
  std::array<Class, n_classes> classes_;
};

}  // namespace tnt
