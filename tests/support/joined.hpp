// A rank that joins a job through the C API when it is constructed and leaves when it is destroyed; and collectives on arrays.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "support/array.hpp"
#include "tarantella/tarantella.h"

namespace tnt::testing {

// For the process of a rank: ends it with the message if the status is an error.
inline void check(tnt_status_t status) {
  if (status != TNT_SUCCESS) throw std::runtime_error(std::string(tnt_status_name(status)) + ": " + tnt_last_error());
}

struct Joined {
  Joined() {
    check(tnt_init(nullptr));
    check(tnt_comm_world(&world));
    check(tnt_comm_rank(world, &rank));
    check(tnt_comm_size(world, &size));
  }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  ~Joined() { EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << tnt_last_error(); }

  tnt_comm_t world = nullptr;
  int rank = -1;
  int size = 0;
};

inline tnt_status_t all_reduce(tnt_comm_t comm, const Array& in, Array& out, tnt_op_t op, tnt_work_t* work = nullptr) {
  return tnt_all_reduce(comm, in.data(), out.data(), in.count(), in.dtype(), op, nullptr, work);
}

}  // namespace tnt::testing
