// Group calls on one rank: when the operations begin, what is refused, and what becomes of a group that is refused.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "support/alone.hpp"

namespace {

using tnt::testing::expect_error;

class CallGroupTest : public tnt::testing::Alone {
 protected:
  [[nodiscard]] tnt_status_t copy(int* out, tnt_comm_t comm = nullptr) const {
    return tnt_all_reduce(comm != nullptr ? comm : world, &in_, out, 1, TNT_INT32, TNT_SUM, nullptr, nullptr);
  }
  int in_ = 7;
};

TEST_F(CallGroupTest, BeginsAtTheOutermostEnd) {
  tnt_comm_t part = nullptr;
  ASSERT_EQ(tnt_comm_split(world, 0, 0, &part), TNT_SUCCESS);
  int outs[4] = {};
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(copy(&outs[0]), TNT_SUCCESS);
  EXPECT_EQ(tnt_group_start(), TNT_SUCCESS);
  EXPECT_EQ(copy(&outs[1], part), TNT_SUCCESS);
  EXPECT_EQ(tnt_broadcast(part, &in_, &outs[2], 1, TNT_INT32, 0, nullptr, nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS);
  EXPECT_EQ(copy(&outs[3]), TNT_SUCCESS);
  EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_SUCCESS);
  for (const int out : outs) EXPECT_EQ(out, 0);
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS) << tnt_last_error();
  for (const int out : outs) EXPECT_EQ(out, 7);
  EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS) << tnt_last_error();
}

TEST_F(CallGroupTest, CountsAreCopiedInTheCall) {
  int out = 0;
  std::size_t counts[] = {1};
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
  EXPECT_EQ(tnt_all_gather_v(world, &in_, &out, counts, TNT_INT32, nullptr, nullptr), TNT_SUCCESS);
  counts[0] = 1'000'000;
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(out, 7);
}

TEST_F(CallGroupTest, AnEmptyOneDoesNothing) {
  EXPECT_EQ(tnt_group_start(), TNT_SUCCESS);
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS);
  expect_error(tnt_group_end(), TNT_INVALID_ARGUMENT, "tnt_group_end without a tnt_group_start in this thread");
}

TEST_F(CallGroupTest, ARefusedCallIsTheErrorOfAllOfIt) {
  int before = 0;
  int after = 0;
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
  EXPECT_EQ(copy(&before), TNT_SUCCESS);
  expect_error(copy(nullptr), TNT_INVALID_ARGUMENT, "out is NULL");
  expect_error(tnt_send(world, &in_, 1, TNT_INT32, 5, nullptr, nullptr), TNT_INVALID_ARGUMENT, "to 5 is not one of");
  EXPECT_EQ(copy(&after), TNT_SUCCESS);
  expect_error(tnt_group_end(), TNT_INVALID_ARGUMENT, "out is NULL");
  EXPECT_EQ(before + after, 0);
  EXPECT_EQ(copy(&after), TNT_SUCCESS) << "the group has ended";
  EXPECT_EQ(after, 7);
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
  EXPECT_EQ(copy(&before), TNT_SUCCESS);
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS) << "the next one begins anew: " << tnt_last_error();
  EXPECT_EQ(before, 7);
}

TEST_F(CallGroupTest, WhatCannotStandInItIsNamed) {
  tnt_comm_t part = nullptr;
  tnt_comm_t made = nullptr;
  tnt_reducer_t reducer = nullptr;
  const int member = 0;
  const tnt_tensor_t tensor{"a", 1, TNT_FLOAT32};
  ASSERT_EQ(tnt_comm_split(world, 0, 0, &part), TNT_SUCCESS);
  const std::pair<const char*, std::function<tnt_status_t()>> calls[] = {
      {"tnt_comm_split", [&] { return tnt_comm_split(world, 0, 0, &made); }},
      {"tnt_comm_create_group", [&] { return tnt_comm_create_group(world, &member, 1, 0, &made); }},
      {"tnt_comm_shrink", [&] { return tnt_comm_shrink(part, &made); }},
      {"tnt_comm_grow", [&] { return tnt_comm_grow(part, nullptr, 2, -1, &made); }},
      {"tnt_comm_set_error_mode", [&] { return tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN); }},
      {"tnt_comm_connect_device", [&] { return tnt_comm_connect_device(part, 0); }},
      {"tnt_comm_destroy", [&] { return tnt_comm_destroy(part); }},
      {"tnt_reducer_create", [&] { return tnt_reducer_create(part, &tensor, 1, nullptr, &reducer); }},
      {"tnt_finalize", [&] { return tnt_finalize(); }}};
  int out = 0;
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
  for (const auto& [name, call] : calls) {
    expect_error(call(), TNT_INVALID_ARGUMENT,
                 std::string(name) + " cannot stand between tnt_group_start and tnt_group_end: call it before or after");
  }
  EXPECT_EQ(copy(&out), TNT_SUCCESS);
  EXPECT_EQ(tnt_group_end(), TNT_SUCCESS) << "they leave the group as it was: " << tnt_last_error();
  EXPECT_EQ(out, 7);
  tnt_work_t work = nullptr;
  ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
  expect_error(tnt_barrier(world, nullptr, &work), TNT_INVALID_ARGUMENT,
               "work must be NULL in a group: tnt_group_end waits for its operations");
  expect_error(tnt_group_end(), TNT_INVALID_ARGUMENT, "work must be NULL in a group");
  EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
}

// Its calls keep their communicators, but no longer than the thread exists.
TEST_F(CallGroupTest, BelongsToItsThread) {
  tnt_comm_t part = nullptr;
  ASSERT_EQ(tnt_comm_split(world, 0, 0, &part), TNT_SUCCESS);
  int out = 0;
  std::thread([&] {
    EXPECT_EQ(tnt_group_start(), TNT_SUCCESS);
    EXPECT_EQ(copy(&out, part), TNT_SUCCESS);
    std::thread([&] {
      expect_error(tnt_comm_destroy(part), TNT_INVALID_ARGUMENT,
                   "comm is in use: another thread is inside a call with it or has it in a group");
      expect_error(tnt_finalize(), TNT_INVALID_ARGUMENT, "a comm handle or has it in a group, which must end first");
      int own = 0;
      EXPECT_EQ(copy(&own, part), TNT_SUCCESS) << tnt_last_error();
      EXPECT_EQ(own, 7) << "this thread has no group";
    }).join();
  }).join();
  EXPECT_EQ(out, 0);
  EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS) << tnt_last_error();
}

TEST(CallGroup, NeedsAJob) {
  tnt::testing::clear_environment();
  expect_error(tnt_group_start(), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
}

}  // namespace
