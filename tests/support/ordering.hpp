// Who may touch memory at the same time: vector clocks of all that runs by itself (each stream, and the host), and the history
// of accesses to each byte. Two accesses, one of them a write, of which neither is before the other are a conflict, also if
// they happened to run one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tnt::testing {

// How far each component had come when something happened, as far as that something is ordered after it.
class Clock {
 public:
  [[nodiscard]] std::uint64_t of(std::size_t component) const { return component < ticks_.size() ? ticks_[component] : 0; }
  void set(std::size_t component, std::uint64_t tick);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> ticks_;
};

// What touched memory: the tick-th thing that a component did.
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
  // Adds the access of an actor that happens at `clock`, and returns those before it that it conflicts with, one for each
  // actor.
  [[nodiscard]] std::vector<Conflict> add(const Access& access, const std::shared_ptr<const Actor>& actor, const Clock& clock);
  void forget(const void* memory, std::size_t bytes);

 private:
  struct Cell {
    const std::byte* end = nullptr;
    std::shared_ptr<const Actor> writer;                // the last
    std::vector<std::shared_ptr<const Actor>> readers;  // since then, the last of each component
  };
  using Cells = std::map<const std::byte*, Cell>;  // by their first byte
  void split(const std::byte* at);
  Cells::iterator cell_at(const std::byte* at, const std::byte* end);

  Cells cells_;
};

}  // namespace tnt::testing
