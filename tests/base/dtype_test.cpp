// Element types: sizes, names, invalid values, and that dispatch agrees with the sizes.
#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include "support/array.hpp"

namespace tnt {
namespace {

TEST(Dtype, SizesAreThoseOfTheTypes) {
  for (const tnt_dtype_t dtype : testing::all_dtypes) {
    EXPECT_TRUE(is_dtype(dtype));
    EXPECT_EQ(dtype_size(dtype), dispatch(dtype, []<typename T>() { return sizeof(T); })) << dtype_name(dtype);
  }
}

TEST(Dtype, NamesTellApart) {
  EXPECT_STREQ(dtype_name(TNT_FLOAT32), "float32");
  EXPECT_STREQ(dtype_name(TNT_BFLOAT16), "bfloat16");
  EXPECT_STREQ(dtype_name(TNT_INT64), "int64");
  EXPECT_STREQ(op_name(TNT_SUM), "sum");
  EXPECT_STREQ(op_name(TNT_PROD), "prod");
}

TEST(Dtype, WhatIsNoTypeIsRefused) {
  for (const int value : {8, -1, 1000}) {
    const auto dtype = static_cast<tnt_dtype_t>(value);  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange): on purpose
    EXPECT_FALSE(is_dtype(dtype));
    EXPECT_EQ(dtype_size(dtype), 0U);
    EXPECT_STREQ(dtype_name(dtype), "unknown dtype");
    EXPECT_THROW(dispatch(dtype, []<typename T>() {}), Error);
  }
  EXPECT_FALSE(is_op(static_cast<tnt_op_t>(5)));
  EXPECT_STREQ(op_name(static_cast<tnt_op_t>(-1)), "unknown op");
}

}  // namespace
}  // namespace tnt
