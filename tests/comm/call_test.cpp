// The text that describes a call in error messages.
#include "comm/call.hpp"

#include <gtest/gtest.h>

namespace tnt {
namespace {

TEST(Call, SaysWhatWasCalled) {
  EXPECT_EQ(describe({.kind = Call::barrier, .count = 3}), "barrier");
  EXPECT_EQ(describe({.kind = Call::all_gather, .dtype = TNT_INT8, .count = 3}), "all_gather of 3 int8");
  EXPECT_EQ(describe({.kind = Call::all_to_all, .dtype = TNT_INT64, .count = 7}), "all_to_all of 7 int64");
  EXPECT_EQ(describe({.kind = Call::broadcast, .dtype = TNT_FLOAT64, .root = 2, .count = 3}),
            "broadcast of 3 float64 from rank 2");
  EXPECT_EQ(describe({.kind = Call::reduce_scatter, .dtype = TNT_FLOAT16, .op = TNT_AVG, .count = 3}),
            "reduce_scatter avg of 3 float16");
  EXPECT_EQ(describe({.kind = Call::reduce, .dtype = TNT_UINT32, .op = TNT_BXOR, .root = 1, .count = 3}),
            "reduce bxor of 3 uint32 to rank 1");
  EXPECT_EQ(describe({.kind = Call::gather, .dtype = TNT_INT8, .root = 1, .count = 3}), "gather of 3 int8 to rank 1");
  EXPECT_EQ(describe({.kind = Call::scatter, .dtype = TNT_INT8, .root = 1, .count = 3}), "scatter of 3 int8 from rank 1");
  EXPECT_EQ(describe({.kind = Call::all_to_all_v, .dtype = TNT_FLOAT32}), "all_to_all_v of float32");
  EXPECT_EQ(describe({.kind = Call::send, .dtype = TNT_INT8, .root = 4, .count = 3}), "send of 3 int8 to rank 4");
  EXPECT_EQ(describe({.kind = Call::recv, .dtype = TNT_INT8, .root = 4, .count = 3}), "recv of 3 int8 from rank 4");
}

TEST(Call, UnevenFormsTellTheirCountsApart) {
  const std::size_t few_first[] = {1, 3};
  const std::size_t many_first[] = {3, 1};
  const Call one = uneven_call(Call::reduce_scatter_v, few_first, TNT_FLOAT32, TNT_MAX);
  const Call other = uneven_call(Call::reduce_scatter_v, many_first, TNT_FLOAT32, TNT_MAX);
  EXPECT_EQ(describe(one), "reduce_scatter_v max of 4 float32");
  EXPECT_EQ(describe(one), describe(other));
  EXPECT_NE(one, other);
  EXPECT_NE(signature(one, 7), signature(other, 7));
  EXPECT_EQ(one, uneven_call(Call::reduce_scatter_v, few_first, TNT_FLOAT32, TNT_MAX));
}

}  // namespace
}  // namespace tnt
