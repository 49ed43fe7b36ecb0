// Up to how many bytes an all_reduce between nodes takes recursive doubling, found by measurement: log2 n messages of all data
// cost less than twice as many of half of it where messages are slow beside bytes.
#pragma once

#include <cstddef>
#include <optional>

namespace tnt {

class NetworkCommunicator;

// Collective, when a job starts; milliseconds. Nothing for two members and on one node, where the borders are fixed. The same
// on all ranks.
[[nodiscard]] std::optional<std::size_t> measure_doubling_limit(NetworkCommunicator& comm, double timeout);

}  // namespace tnt
