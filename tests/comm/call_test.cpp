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
  EXPECT_EQ(describe({.kind = Call::send, .dtype = TNT_INT8, .root = 4, .count = 3}), "send of 3 int8 to rank 4");
  EXPECT_EQ(describe({.kind = Call::recv, .dtype = TNT_INT8, .root = 4, .count = 3}), "recv of 3 int8 from rank 4");
}

}  // namespace
}  // namespace tnt
