// The arguments that are passed on when ranks are started again under mpirun.
#include "benchmarks/start.hpp"

#include <gtest/gtest.h>

namespace tnt::bench {
namespace {

using Words = std::vector<std::string>;

TEST(Start, OnlyTheNumberOfRanksIsLeftOut) {
  EXPECT_EQ(without_ranks({"all_reduce", "--ranks", "4", "-b", "4", "-e", "64M", "-f", "4"}),
            (Words{"all_reduce", "-b", "4", "-e", "64M", "-f", "4"}));
  EXPECT_EQ(without_ranks({"--ranks=4", "-b", "4"}), (Words{"-b", "4"}));
  EXPECT_EQ(without_ranks({"-b", "4", "--ranks"}), (Words{"-b", "4"}));
  EXPECT_EQ(without_ranks({}), Words{});
}

}  // namespace
}  // namespace tnt::bench
