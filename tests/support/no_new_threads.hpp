// While it exists, this process cannot start a thread, as if the limit on its processes were reached.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

#include "common/non_copyable.hpp"

namespace tnt::testing {

class NoNewThreads : NonCopyable {
 public:
  NoNewThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    constexpr std::size_t more_than_there_are_addresses = std::size_t{1} << 47;
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, more_than_there_are_addresses), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  ~NoNewThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace tnt::testing
