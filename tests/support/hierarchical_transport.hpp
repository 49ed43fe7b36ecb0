// The hierarchical communicator: nodes with a shared segment each, and the fake network between them. Where a test says
// nothing, ranks alternate between two nodes.
#pragma once

#include <memory>
#include <vector>

#include "support/transport.hpp"

namespace tnt::testing {

[[nodiscard]] std::unique_ptr<Transport> make_transport_on(std::vector<int> nodes);  // nodes: of each rank, numbered from 0

}  // namespace tnt::testing
