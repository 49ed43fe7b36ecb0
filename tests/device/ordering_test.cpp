// Vector clocks and the history of accesses, without a device.
#include "support/ordering.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tnt::testing {
namespace {

std::array<std::byte, 64> memory;

Access read(std::size_t begin, std::size_t end) { return {&memory[begin], end - begin, false}; }
Access write(std::size_t begin, std::size_t end) { return {&memory[begin], end - begin, true}; }

// Components that act one after another, and what each knows of the others.
struct Component {
  explicit Component(std::size_t number) : number(number) {}
  std::size_t number;
  std::uint64_t tick = 0;
  Clock clock;

  [[nodiscard]] std::vector<Conflict> touch(AccessHistory& history, const Access& access) {
    clock.set(number, ++tick);
    return history.add(access, std::make_shared<const Actor>(Actor{number, tick, "component " + std::to_string(number)}),
                       clock);
  }
};

TEST(Ordering, OneAfterTheOtherIsNoConflict) {
  AccessHistory history;
  Component one(0);
  EXPECT_TRUE(one.touch(history, write(0, 64)).empty());
  EXPECT_TRUE(one.touch(history, read(8, 16)).empty());
  EXPECT_TRUE(one.touch(history, write(4, 32)).empty());
}

TEST(Ordering, TwoReadersAreNoConflict) {
  AccessHistory history;
  Component one(0);
  Component two(1);
  EXPECT_TRUE(one.touch(history, read(0, 64)).empty());
  EXPECT_TRUE(two.touch(history, read(0, 64)).empty());
}

TEST(Ordering, EveryPairWithAWriterIs) {
  for (const auto& [first, second] :
       {std::pair{write(0, 8), read(0, 8)}, {read(0, 8), write(0, 8)}, {write(0, 8), write(0, 8)}}) {
    AccessHistory history;
    Component one(0);
    Component two(1);
    EXPECT_TRUE(one.touch(history, first).empty());
    const auto conflicts = two.touch(history, second);
    ASSERT_EQ(conflicts.size(), 1U);
    EXPECT_EQ(conflicts[0].earlier->component, 0U);
    EXPECT_EQ(conflicts[0].earlier_writes, first.write);
  }
}

TEST(Ordering, WhoHasHeardOfItIsOrdered) {
  AccessHistory history;
  Component one(0);
  Component two(1);
  EXPECT_TRUE(one.touch(history, write(0, 8)).empty());
  two.clock.join(one.clock);
  EXPECT_TRUE(two.touch(history, write(0, 8)).empty());
  EXPECT_EQ(one.touch(history, read(0, 8)).size(), 1U);  // but not the other way round
}

TEST(Ordering, HearingOfAnEarlierOneIsNotEnough) {
  AccessHistory history;
  Component one(0);
  Component two(1);
  EXPECT_TRUE(one.touch(history, write(0, 8)).empty());
  two.clock.join(one.clock);
  EXPECT_TRUE(one.touch(history, write(0, 8)).empty());
  EXPECT_EQ(two.touch(history, read(0, 8)).size(), 1U);
}

TEST(Ordering, OnlyCommonBytesCount) {
  AccessHistory history;
  Component one(0);
  Component two(1);
  EXPECT_TRUE(one.touch(history, write(8, 16)).empty());
  EXPECT_TRUE(one.touch(history, write(32, 40)).empty());
  EXPECT_TRUE(two.touch(history, write(0, 8)).empty());
  EXPECT_TRUE(two.touch(history, write(16, 32)).empty());
  const auto conflicts = two.touch(history, read(12, 33));
  ASSERT_EQ(conflicts.size(), 2U);  // two actions of component 0
  EXPECT_EQ(conflicts[0].begin, &memory[12]);
  EXPECT_EQ(conflicts[0].end, &memory[16]);
  EXPECT_EQ(conflicts[1].begin, &memory[32]);
  EXPECT_EQ(conflicts[1].end, &memory[33]);
}

TEST(Ordering, AWriterHasToHearOfEveryReader) {
  AccessHistory history;
  Component writer(0);
  std::array readers{Component(1), Component(2), Component(3)};
  EXPECT_TRUE(writer.touch(history, write(0, 16)).empty());
  for (Component& reader : readers) {
    reader.clock.join(writer.clock);
    EXPECT_TRUE(reader.touch(history, read(0, 16)).empty());
  }
  writer.clock.join(readers[0].clock);
  writer.clock.join(readers[2].clock);
  const auto conflicts = writer.touch(history, write(0, 16));
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].earlier->component, 2U);
  EXPECT_FALSE(conflicts[0].earlier_writes);
}

TEST(Ordering, WhatIsForgottenIsNoConflict) {
  AccessHistory history;
  Component one(0);
  Component two(1);
  EXPECT_TRUE(one.touch(history, write(0, 64)).empty());
  history.forget(&memory[16], 16);
  EXPECT_TRUE(two.touch(history, read(16, 32)).empty());
  EXPECT_EQ(two.touch(history, read(15, 33)).size(), 1U);
}

}  // namespace
}  // namespace tnt::testing
