// Threads of the library get no signals, and a thread that cannot be started leaves the caller as it was.
#include "base/thread.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "common/error.hpp"
#include "support/no_new_threads.hpp"

namespace tnt {
namespace {

bool is_blocked(int signal) {
  sigset_t now;
  EXPECT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &now), 0);
  return sigismember(&now, signal) == 1;
}

TEST(Thread, GetsNoSignals) {
  bool blocked = false;
  start_thread("tnt-test", [&] { blocked = is_blocked(SIGTERM); }).join();
  EXPECT_TRUE(blocked);
  EXPECT_FALSE(is_blocked(SIGTERM));
}

TEST(Thread, ThatCannotBeStartedIsAnErrorAndLeavesTheSignalsAlone) {
  const testing::NoNewThreads limit;
  try {
    start_thread("tnt-test", [] {}).join();
    ADD_FAILURE() << "it was started";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_EQ(std::string(error.what()).find("cannot start the thread tnt-test: "), 0U) << error.what();
    EXPECT_NE(std::string(error.what()).find("ulimit -u"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(is_blocked(SIGTERM));
  EXPECT_FALSE(is_blocked(SIGINT));
}

}  // namespace
}  // namespace tnt
