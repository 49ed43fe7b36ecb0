// Element types: sizes, names, invalid values, and that dispatch agrees with the sizes.
#include "common/dtype.hpp"

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
  EXPECT_STREQ(dtype_name(TNT_UINT64), "uint64");
  EXPECT_STREQ(op_name(TNT_PROD), "prod");
  EXPECT_STREQ(op_name(TNT_BXOR), "bxor");
}

TEST(Dtype, BitsAreOfIntegers) {
  for (const tnt_dtype_t dtype : testing::integers) EXPECT_TRUE(is_integer(dtype)) << dtype_name(dtype);
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16}) EXPECT_FALSE(is_integer(dtype));
  for (const tnt_op_t op : testing::all_ops) EXPECT_FALSE(needs_integers(op)) << op_name(op);
  for (const tnt_op_t op : testing::integer_ops) EXPECT_TRUE(needs_integers(op)) << op_name(op);
}

TEST(Dtype, EightBitFloatsAreNoTensorsType) {
  EXPECT_STREQ(dtype_name(TNT_FLOAT8_E4M3), "float8_e4m3");
  EXPECT_STREQ(dtype_name(TNT_FLOAT8_E5M2), "float8_e5m2");
  for (const tnt_dtype_t dtype : {TNT_FLOAT8_E4M3, TNT_FLOAT8_E5M2}) {
    EXPECT_TRUE(is_float8(dtype));
    EXPECT_FALSE(is_dtype(dtype));
    EXPECT_FALSE(is_integer(dtype));
    EXPECT_EQ(dtype_size(dtype), 1U);
    EXPECT_THROW(dispatch(dtype, []<typename T>() {}), Error);
  }
}

TEST(Dtype, WhatIsNoTypeIsRefused) {
  for (const int value : {12, -1, 1000}) {
    const auto dtype = static_cast<tnt_dtype_t>(value);  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange): on purpose
    EXPECT_FALSE(is_dtype(dtype));
    EXPECT_EQ(dtype_size(dtype), 0U);
    EXPECT_STREQ(dtype_name(dtype), "unknown dtype");
    EXPECT_THROW(dispatch(dtype, []<typename T>() {}), Error);
  }
  EXPECT_FALSE(is_op(static_cast<tnt_op_t>(11)));
  EXPECT_STREQ(op_name(static_cast<tnt_op_t>(-1)), "unknown op");
}

}  // namespace
}  // namespace tnt
