// What a size means for each collective, and the shares of the uneven ones.
#include "benchmarks/shape.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "benchmarks/shares.hpp"

namespace tnt::bench {
namespace {

TEST(Shares, GrowWithTheRankAndAddUp) {
  EXPECT_EQ(shares(1000, 4), (std::vector<std::size_t>{100, 200, 300, 400}));
  EXPECT_EQ(shares(7, 1), std::vector<std::size_t>{7});
  EXPECT_EQ(shares(1, 3), (std::vector<std::size_t>{0, 0, 1}));
  for (const std::size_t all : {std::size_t{0}, std::size_t{5}, std::size_t{4097}, (std::size_t{1} << 40) + 1}) {
    for (const int ranks : {2, 3, 512}) {
      const std::vector<std::size_t> parts = shares(all, ranks);
      EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::size_t{0}), all);
      EXPECT_EQ(share_begin(all, ranks, ranks), all);
      EXPECT_LE(parts.front(), parts.back());
    }
  }
}

TEST(Shape, ASizeIsTheTotalOrOneVector) {
  const auto expect = [](Collective collective, std::size_t count, std::size_t in, std::size_t out) {
    const Shape shape = shape_of(collective, 4002, 4, 4, 2);  // of 1000 floats, rank 2 of 4
    EXPECT_EQ(shape.count, count) << name(collective);
    EXPECT_EQ(shape.in, in) << name(collective);
    EXPECT_EQ(shape.out, out) << name(collective);
  };
  expect(Collective::all_reduce, 1000, 1000, 1000);
  expect(Collective::all_gather, 250, 250, 1000);
  expect(Collective::scatter, 250, 1000, 250);
  expect(Collective::all_to_all, 250, 1000, 1000);
  expect(Collective::all_gather_v, 1000, 300, 1000);
  expect(Collective::reduce_scatter_v, 1000, 1000, 300);
  expect(Collective::all_to_all_v, 1000, 1000, 1200);
  expect(Collective::barrier, 0, 0, 0);
}

}  // namespace
}  // namespace tnt::bench
