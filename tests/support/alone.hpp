// For tests in a process that is a job of one rank: initialised before the test and finalised after it, whatever the
// environment says.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tarantella/tarantella.h"

namespace tnt::testing {

inline void clear_environment() {
  for (const char* name : {"TNT_RANK", "TNT_SIZE", "TNT_RENDEZVOUS", "TNT_TOKEN", "TNT_TIMEOUT", "TNT_TIMELINE",
                           "TNT_FUSION_THRESHOLD", "TNT_LOG_LEVEL", "TNT_ON_ALL_RANKS", "TNT_INTERNAL_JOINED"}) {
    unsetenv(name);
  }
}

// Expects this status, and a last error message that contains `part`.
inline void expect_error(tnt_status_t actual, tnt_status_t expected, const std::string& part) {
  EXPECT_EQ(actual, expected) << tnt_last_error();
  EXPECT_NE(std::string(tnt_last_error()).find(part), std::string::npos) << tnt_last_error() << "\nhas no: " << part;
}

class Alone : public ::testing::Test {
 protected:
  void SetUp() override {
    clear_environment();
    ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS) << tnt_last_error();
    ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(tnt_finalize(), TNT_SUCCESS); }

  tnt_comm_t world = nullptr;
};

}  // namespace tnt::testing
