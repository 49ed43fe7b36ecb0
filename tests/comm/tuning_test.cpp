// The tuning table: the entry for a number of ranks, what a file may contain, and that results do not depend on it.
#include "comm/shm/tuning.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/shm/shm_communicator.hpp"
#include "common/error.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

Tuning lines_up_to(std::size_t bytes) {
  Tuning tuning;
  tuning.ll_bytes = bytes;
  return tuning;
}

TEST(TuningTable, IsTheDefaultWhenEmpty) {
  const TuningTable table;
  EXPECT_EQ(table.of(2), Tuning{});
  EXPECT_EQ(table.of(512), Tuning{});
  EXPECT_EQ(Tuning{}.ll_bytes, 512U);
  EXPECT_EQ(Tuning{}.one_shot_bytes, 8U << 10);
  EXPECT_EQ(Tuning{}.streaming_bytes, 512U << 10);
  EXPECT_EQ(Tuning{}.chunk_bytes, 256U << 10);
}

TEST(TuningTable, TheNearestNumberOfRanksIsTaken) {
  TuningTable table;
  for (const std::size_t ranks : {16U, 4U, 8U}) table.set(ranks, lines_up_to(ranks));
  table.set(4, lines_up_to(5));  // instead
  for (const auto& [ranks, expected] : std::vector<std::pair<std::size_t, std::size_t>>{
           {1, 5}, {2, 5}, {4, 5}, {5, 5}, {6, 5}, {7, 8}, {8, 8}, {12, 8}, {13, 16}, {500, 16}}) {
    EXPECT_EQ(table.of(ranks).ll_bytes, expected) << ranks << " ranks";
  }
}

TEST(TuningTable, HoldsAsManyAsItSays) {
  TuningTable table;
  for (std::size_t i = 0; i < TuningTable::max_entries; ++i) table.set(i + 2, {});
  EXPECT_NO_THROW(table.set(2, {}));
  EXPECT_THROW(table.set(1000, {}), Error);
}

TEST(TuningTable, HasWhatTheTextSays) {
  TuningTable table;
  table.set_default(lines_up_to(64));
  table.set(4, {.ll_bytes = 0, .one_shot_bytes = 65536, .streaming_bytes = 1, .chunk_bytes = 32768});
  table.set(2, lines_up_to(128));
  EXPECT_EQ(TuningTable::from_json(R"({"schema": 2, "about": "a \"word\"", "default": {"ll_bytes": 64}, "entries": [
    {"ranks": 4, "ll_bytes": 0, "one_shot_bytes": 65536, "streaming_bytes": 1, "chunk_bytes": 32768},
    {"ranks": 2, "ll_bytes": 128}]})"),
            table);
  EXPECT_EQ(TuningTable::from_json(R"({"schema": 2, "entries": []})"), TuningTable());
  EXPECT_FALSE(table == TuningTable());
}

TEST(TuningTable, WhatIsNotSaidIsAsByDefault) {
  const TuningTable table = TuningTable::from_json(R"({"schema": 2, "entries": [{"ranks": 2, "ll_bytes": 256}]})");
  EXPECT_EQ(table.of(2), lines_up_to(256));
}

struct Nonsense {
  const char* text;
  const char* begin;
};
class TuningNonsense : public ::testing::TestWithParam<Nonsense> {};
TEST_P(TuningNonsense, IsNamedByItsKey) {
  try {
    (void)TuningTable::from_json(GetParam().text);
    FAIL() << "taken: " << GetParam().text;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.what()).find(GetParam().begin), 0U) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, TuningNonsense,
    ::testing::Values(
        Nonsense{"", "the text is not JSON"}, Nonsense{"{\"schema\": 2,\n", "the text is not JSON"},
        Nonsense{"\xff\xfe", "the text is not JSON"}, Nonsense{"[1]", "the text is [1]: expected an object"},
        Nonsense{"{}", "schema is missing: this version reads 2"}, Nonsense{R"({"schema": 1})", "schema is 1: this version"},
        Nonsense{R"({"schema": "1"})", "schema is \"1\""}, Nonsense{R"({"schema": 2, "entry": []})", "unknown key \"entry\""},
        Nonsense{R"({"schema": 2, "default": 3})", "default is 3: expected an object"},
        Nonsense{R"({"schema": 2, "default": {"ranks": 2}})", "unknown key default.\"ranks\""},
        Nonsense{R"({"schema": 2, "default": {"ll_bytes": 513}})", "default.ll_bytes is 513: expected a whole number"},
        Nonsense{R"({"schema": 2, "default": {"ll_bytes": -1}})", "default.ll_bytes is -1: "},
        Nonsense{R"({"schema": 2, "default": {"ll_bytes": 1.5}})", "default.ll_bytes is 1.5: "},
        Nonsense{R"({"schema": 2, "default": {"ll_bytes": "64"}})", "default.ll_bytes is \"64\": "},
        Nonsense{R"({"schema": 2, "default": {"ll_bytes": null}})", "default.ll_bytes is null: "},
        Nonsense{R"({"schema": 2, "default": {"one_shot_bytes": 65537}})", "default.one_shot_bytes is 65537: "},
        Nonsense{R"({"schema": 2, "default": {"chunk_bytes": 64}})", "default.chunk_bytes is 64: "},
        Nonsense{R"({"schema": 2, "default": {"chunk_bytes": 262145}})", "default.chunk_bytes is 262145: "},
        Nonsense{R"({"schema": 2, "default": {"streaming_bytes": 1e30}})", "default.streaming_bytes is 1e+30: "},
        Nonsense{R"({"schema": 2, "entries": {}})", "entries is {}: expected a list"},
        Nonsense{R"({"schema": 2, "entries": [{}]})", "entries[0].ranks is missing"},
        Nonsense{R"({"schema": 2, "entries": [7]})", "entries[0] is 7: expected an object"},
        Nonsense{R"({"schema": 2, "entries": [{"ranks": 2}, {"ranks": 1}]})", "entries[1].ranks is 1: "},
        Nonsense{R"({"schema": 2, "entries": [{"ranks": 2}, {"ranks": 2}]})", "entries[1].ranks is 2 for the second time"},
        Nonsense{R"({"schema": 2, "entries": [{"ranks": 2, "line": 1}]})", "unknown key entries[0].\"line\""}));

// Printed in the error, it would overflow the stack.
TEST(TuningTable, EndlessNestingIsRefused) {
  try {
    (void)TuningTable::from_json(R"({"schema": 2, "entries": [)" + std::string(200'000, '[') + std::string(200'000, ']') +
                                 "]}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the text has more than 16 levels of lists and objects");
  }
}

TEST(TuningFile, ThatIsNotThereIsNamed) {
  try {
    (void)read_tuning_file("/no/such/file.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tuning file /no/such/file.json cannot be read; make one with `tnt-bench tune -o FILE`");
  }
}

// Every algorithm at every size, at the limits of a table's values.
const Tuning extremes[] = {
    {.ll_bytes = 0, .one_shot_bytes = 0, .streaming_bytes = 0, .chunk_bytes = Tuning::min_chunk},
    {.ll_bytes = 0, .one_shot_bytes = Tuning::max_one_shot, .streaming_bytes = Tuning::never_streaming, .chunk_bytes = 100'001},
    {.ll_bytes = 1, .one_shot_bytes = 3, .streaming_bytes = 0, .chunk_bytes = Slots::slot_bytes}};

class ExtremeTuning : public ::testing::TestWithParam<Tuning> {};

constexpr int extreme_ranks = 3;

void expect_right_sums(Communicator& comm) {
  for (const std::size_t count : {0U, 1U, 16U, 129U, 1024U, 5000U, 16384U, 16385U, 70'001U, 300'000U}) {
    for (const bool in_place : {false, true}) {
      std::vector<float> in(count);
      std::vector<float> out(count, -1.0F);
      for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000) + static_cast<float>(comm.rank());
      const TensorView view{.in = in.data(), .out = in_place ? in.data() : out.data(), .count = count};
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, testing::call());
      const auto n = static_cast<float>(comm.size());
      const std::vector<float>& result = in_place ? in : out;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) wrong += result[i] == n * static_cast<float>(i % 1000) + n * (n - 1) / 2 ? 0 : 1;
      EXPECT_EQ(wrong, 0U) << count << " elements, in place: " << in_place;
    }
  }
}

TEST_P(ExtremeTuning, SumsAreRight) {
  FileDescriptor descriptor = Segment::create();
  TuningTable table;
  table.set_default(GetParam());
  ShmWorld::publish_tuning(descriptor, table);
  const auto segment = std::make_shared<Segment>(std::move(descriptor));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < extreme_ranks; ++rank) {
    threads.emplace_back([&segment, rank] {
      const auto world = std::make_shared<ShmWorld>(segment, rank, extreme_ranks, ShmCommunicator::world_bytes(extreme_ranks));
      EXPECT_EQ(world->tuning(extreme_ranks), GetParam());
      ShmCommunicator comm(world);
      expect_right_sums(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
INSTANTIATE_TEST_SUITE_P(All, ExtremeTuning, ::testing::ValuesIn(extremes));

}  // namespace
}  // namespace tnt
