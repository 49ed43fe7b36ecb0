// For tests of tnt_comm_shrink over TCP: ranks whose errors are returned, and what they check.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/growing.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace tnt::testing {

inline ProcessOptions by_tcp() { return {.environment = {{"TNT_RENDEZVOUS", tcp_rendezvous()}, {"TNT_TIMEOUT", "30"}}}; }

// Joins, with so many consecutive ranks on each node, and makes the world's errors returned.
struct Returning {
  Returning(int rank, int per_node) {
    setenv("TNT_INTERNAL_NODE", std::to_string(rank / per_node).c_str(), 1);
    check(tnt_init(nullptr));
    check(tnt_comm_world(&comm));
    check(tnt_comm_set_error_mode(comm, TNT_ERRORS_RETURN));
  }
  Returning(const Returning&) = delete;
  Returning& operator=(const Returning&) = delete;
  ~Returning() { EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << said(); }
  tnt_comm_t comm = nullptr;
};

inline tnt_comm_t shrunk(tnt_comm_t comm) {
  tnt_comm_t smaller = nullptr;
  check(tnt_comm_shrink(comm, &smaller));
  return smaller;
}

inline double sum_of(tnt_comm_t comm, int rank) {
  std::vector<double> values(3000, rank + 1);
  check(tnt_all_reduce(comm, values.data(), values.data(), values.size(), TNT_FLOAT64, TNT_SUM, nullptr, nullptr));
  return values.back();
}

inline void expect_members(tnt_comm_t comm, int rank, const std::vector<int>& members) {
  EXPECT_EQ(numbers_of(comm, rank), members);
  double expected = 0;
  for (const int member : members) expected += member + 1;
  EXPECT_EQ(sum_of(comm, rank), expected);
}

struct Tally {
  std::atomic<int> here{0};
  std::atomic<int> done{0};
  std::atomic<int> stopped{0};
};

inline void arrive(std::atomic<int>& arrived, int ranks) {
  ++arrived;
  wait_for([&] { return arrived >= ranks; });
}

// A rank that is killed with data that it has not read takes back what it has sent, so it waits until the others have all.
inline void all_done(Tally& board, int ranks) { arrive(board.done, ranks); }

// No rank is in an earlier call of the communicator any more: a shrink would end it.
inline void all_here(Tally& board, int ranks) { arrive(board.here, ranks); }

inline void expect_codes(ProcessJob& job, const std::vector<int>& killed) {
  const auto endings = job.wait();
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    const bool is_killed = std::find(killed.begin(), killed.end(), static_cast<int>(rank)) != killed.end();
    EXPECT_EQ(endings[rank].signal, is_killed ? SIGKILL : 0) << "rank " << rank;
    EXPECT_EQ(endings[rank].code, is_killed ? -1 : 0) << "rank " << rank;
  }
}

}  // namespace tnt::testing
