// A data race detector: vector clocks of everything that runs independently (each stream, and the host), and the history of
// accesses to each byte. Two accesses, one of them a write, conflict if neither is ordered before the other, even if they
// happened to run one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tnt::testing {

// How far each component had got when something happened, as far as that is ordered before it.
class Clock {
 public:
  [[nodiscard]] std::uint64_t of(std::size_t component) const { return component < ticks_.size() ? ticks_[component] : 0; }
  void set(std::size_t component, std::uint64_t tick);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> ticks_;
};

// What accessed memory: the tick-th action of a component.
struct Actor {
  std::size_t component = 0;
  std::uint64_t tick = 0;
  std::string what;  // "unpack (number 12, on stream 3)"

  [[nodiscard]] bool before(const Clock& clock) const { return clock.of(component) >= tick; }
};

struct Access {
  const void* memory = nullptr;
  std::size_t bytes = 0;
  bool write = false;

  [[nodiscard]] const std::byte* begin() const { return static_cast<const std::byte*>(memory); }
  [[nodiscard]] const std::byte* end() const { return begin() + bytes; }
};

struct Conflict {
  std::shared_ptr<const Actor> earlier;
  bool earlier_writes = false;
  const std::byte* begin = nullptr;  // the bytes that both touch
  const std::byte* end = nullptr;
};

class AccessHistory {
 public:
  // Adds an actor's access, which happens at `clock`. Returns the earlier accesses that it conflicts with, one for each actor.
  [[nodiscard]] std::vector<Conflict> add(const Access& access, const std::shared_ptr<const Actor>& actor, const Clock& clock);
  void forget(const void* memory, std::size_t bytes);

 private:
  struct Cell {
    const std::byte* end = nullptr;
    std::shared_ptr<const Actor> writer;                // the last writer
    std::vector<std::shared_ptr<const Actor>> readers;  // since then, the last reader of each component
  };
  using Cells = std::map<const std::byte*, Cell>;  // by their first byte
  void split(const std::byte* at);
  Cells::iterator cell_at(const std::byte* at, const std::byte* end);

  Cells cells_;
};

}  // namespace tnt::testing
