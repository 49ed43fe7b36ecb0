// The transport for ranks that are threads. Each test program is linked with one implementation (shm_transport.cpp,
// network_transport.cpp, hierarchical_transport.cpp), so that every transport passes the same tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "support/tree.hpp"

namespace tnt::testing {

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // The communicator of all ranks; called once by each rank's thread.
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(int rank) = 0;
  [[nodiscard]] virtual std::int64_t bytes_taken() const { return 0; }  // bytes of memory used in the shared segment
};

[[nodiscard]] std::unique_ptr<Transport> make_transport(int ranks);
// Of hierarchical_transport.cpp, in which ranks alternate between two nodes otherwise. nodes: of each rank, numbered from 0.
[[nodiscard]] std::unique_ptr<Transport> make_transport_on(std::vector<int> nodes);
// Of shm_transport.cpp, in which ranks are in no domain otherwise. domains: of each rank (comm/shm/domains.hpp).
[[nodiscard]] std::unique_ptr<Transport> make_transport_in(std::vector<std::uint32_t> domains);
[[nodiscard]] Groups summed_groups(int ranks);  // ranks whose sum is taken first; all of them where there is one node

}  // namespace tnt::testing
