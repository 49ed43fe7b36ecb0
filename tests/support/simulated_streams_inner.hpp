// What simulated_streams.hpp's parts share: streams, what is on them, and captures.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "support/simulated_streams.hpp"

namespace tnt::testing {

// A record of an event: what comes later than the next record is another moment.
struct SimulatedStreams::Moment {
  bool completed = false;
  Clock clock;
  std::weak_ptr<Capture> capture;  // in which it was recorded, which keeps it
  bool captured = false;
};

// What a stream is given: work, or a moment that it waits for, or one that it reaches.
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
  std::shared_ptr<Capture> capture;  // that it takes part in
};

// The calls during a capture. Clocks are the capture's own: they tell whether all streams came back to the first.
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
    std::shared_ptr<Stream> replayed_on;  // a stream of the graph's own, but for the first
  };
  std::vector<Part> parts;  // [0]: the stream that the capture began on
  std::vector<Call> calls;
  bool ended = false;

  [[nodiscard]] Part& part_of(const std::shared_ptr<Stream>& stream) {
    for (Part& part : parts) {
      if (part.stream == stream) return part;
    }
    return parts.emplace_back(Part{stream, {}, 0, nullptr});
  }
};

}  // namespace tnt::testing
