// The error type: status, message, and errno's text.
#include "common/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace tnt {
namespace {

TEST(Error, CarriesStatusAndMessage) {
  try {
    fail(TNT_TIMEOUT, "rank {} waited {} s", 3, 1.5);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_TIMEOUT);
    EXPECT_STREQ(error.what(), "rank 3 waited 1.5 s");
  }
}

TEST(Error, SaysWhatTheSystemSaid) {
  try {
    errno = ENOENT;
    fail_errno("cannot open that");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_STREQ(error.what(), "cannot open that: No such file or directory");
  }
}

TEST(Error, EveryStatusHasItsName) {
  EXPECT_STREQ(status_name(TNT_SUCCESS), "TNT_SUCCESS");
  EXPECT_STREQ(status_name(TNT_MISMATCH), "TNT_MISMATCH");
  EXPECT_STREQ(status_name(TNT_UNSUPPORTED), "TNT_UNSUPPORTED");
  EXPECT_STREQ(status_name(static_cast<tnt_status_t>(8)), "unknown status");
}

}  // namespace
}  // namespace tnt
