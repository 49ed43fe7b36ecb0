// Measures collectives of a network when a job starts, for choices that all ranks make alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

class NetworkCommunicator;

// All functions are collective. Ranks agree by our own algorithms, so the network's own collectives are off after each of them.
class TimedCalls {
 public:
  TimedCalls(NetworkCommunicator& comm, double timeout, const char* detail);

  // The value of the rank that has the largest one.
  [[nodiscard]] double largest_of_all(double value);
  // Seconds since the construction.
  [[nodiscard]] double elapsed();
  // Nanoseconds of this rank in one call of kind, with in: bytes of each member. choose: is called before it, when all are
  // there.
  [[nodiscard]] double one(Call::Kind kind, std::size_t bytes, const std::function<void()>& choose);

 private:
  NetworkCommunicator& comm_;
  CallContext context_;
  std::int64_t begin_;
  std::vector<float> in_;
  std::vector<float> out_;
};

}  // namespace tnt
