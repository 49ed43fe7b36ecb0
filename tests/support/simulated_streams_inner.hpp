// Internals shared by the parts of simulated_streams.hpp: streams, their items, and captures.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "support/simulated_streams.hpp"

namespace tnt::testing {

// One record of an event; the next record of the same event is another moment.
struct SimulatedStreams::Moment {
  bool completed = false;
  Clock clock;
  std::weak_ptr<Capture> capture;  // in which it was recorded, and which owns it
  bool captured = false;
};

// An item of a stream: work, or a moment that it waits for, or a moment that it records.
struct SimulatedStreams::Step {
  Work work;
  std::shared_ptr<Moment> awaits = nullptr;
  std::shared_ptr<Moment> reaches = nullptr;
};

struct SimulatedStreams::Item {
  Step step;
  std::shared_ptr<const Actor> actor;
  Clock clock;
  bool begun = false;
};

struct SimulatedStreams::Stream {
  std::string name;
  std::size_t component = 0;
  Priority priority = Priority::normal;
  std::uint64_t tick = 0;
  Clock clock;
  std::deque<std::shared_ptr<Item>> queue;
  std::vector<std::string> history;
  std::shared_ptr<Capture> capture;  // in which it takes part
};

// The calls recorded by a capture. Its clocks are its own: they show whether all streams joined the first one again.
class SimulatedStreams::Capture {
 public:
  struct Call {
    std::shared_ptr<Stream> stream;
    Step step;
  };
  struct Part {
    std::shared_ptr<Stream> stream;
    Clock clock;
    std::uint64_t tick = 0;
    std::shared_ptr<Stream> replayed_on;  // a stream of the graph; the first part uses the caller's
  };
  std::vector<Part> parts;  // [0]: the stream on which the capture began
  std::vector<Call> calls;
  bool ended = false;
  std::vector<std::shared_ptr<void>> kept;  // released with the graph

  [[nodiscard]] Part& part_of(const std::shared_ptr<Stream>& stream) {
    for (Part& part : parts) {
      if (part.stream == stream) return part;
    }
    return parts.emplace_back(Part{stream, {}, 0, nullptr});
  }
};

}  // namespace tnt::testing
