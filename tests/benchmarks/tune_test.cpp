// tnt-bench tune: its flags, the limits that follow from times, and the file that it writes.
#include "benchmarks/tune.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "comm/shm/tuning.hpp"
#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::refusal;
using testing::Scratch;

using Variables = std::map<std::string, std::string>;

TuneOptions parse(const std::vector<std::string>& words, int cores = 8, const Variables& variables = {}) {
  const std::vector<const char*> argv = testing::arguments(words);
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return parse_tune(static_cast<int>(argv.size()), argv.data(), environment, cores);
}

TEST(TuneOptions, Defaults) {
  const testing::Home home("/home/me");
  const TuneOptions options = parse({});
  EXPECT_EQ(options.ranks, (std::vector{2, 8}));
  EXPECT_EQ(options.output.find("/home/me/.cache/tarantella/tuning-"), 0U) << options.output;
  EXPECT_FALSE(options.dry_run);
  EXPECT_EQ(parse({}, 1).ranks, (std::vector{2, 4}));
  EXPECT_EQ(parse({}, 2).ranks, (std::vector{2, 4}));
  EXPECT_EQ(parse({}, 1000).ranks, (std::vector{2, 512}));
}

TEST(TuneOptions, RanksAreTakenOnceAndInOrder) { EXPECT_EQ(parse({"--ranks", "8,2,8,3"}).ranks, (std::vector{2, 3, 8})); }

std::string help_text() {
  try {
    (void)parse({"--help"});
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), 0);
    return failure.what();
  }
  ADD_FAILURE() << "--help printed nothing";
  return "";
}

// Every flag that --help shows, with values that it accepts and rejects.
TEST(TuneOptions, EveryFlagOfTheHelpIsAcceptedAndRefusesNonsense) {
  const std::map<std::string, std::pair<std::string, std::string>> examples{
      {"--ranks", {"2,4", "1"}}, {"--output", {"/tmp/tuning.json", "/no/such/directory/file"}}, {"--dry-run", {"", ""}}};
  std::size_t seen = 0;
  for (const std::string& line : testing::lines_of(help_text())) {
    EXPECT_LE(line.size(), 120U) << line;
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("^ +(-[a-z],)?(--[a-z-]+)"))) continue;
    const std::string flag = match[2];
    if (flag == "--help") continue;
    ASSERT_TRUE(examples.contains(flag)) << flag << " is in the help text, but this test has no example for it";
    ++seen;
    const auto& [sense, nonsense] = examples.at(flag);
    EXPECT_NO_THROW((void)parse(sense.empty() ? std::vector{flag} : std::vector{flag, sense})) << flag;
    if (nonsense.empty()) continue;
    const std::string text = refusal([&, f = flag, n = nonsense] { (void)parse({f, n}); });
    EXPECT_NE(text.find(nonsense), std::string::npos) << text;
  }
  EXPECT_EQ(seen, examples.size());
}

TEST(TuneOptions, NonsenseGetsOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--ranks", "0"}, "--ranks 0: not a whole number from 2 to 512"},
      {{"--ranks", "2,x"}, "--ranks x: not a whole number"},
      {{"--ranks", "2,"}, "--ranks '': not a whole number"},
      {{"--ranks", ""}, "--ranks '': not a whole number"},
      {{"--ranks", "513"}, "--ranks 513: not a whole number"},
      {{"-o", ""}, "-o '': not the name of a file"},
      {{"-o", "/tmp"}, "-o /tmp: not the name of a file"},
      {{"--rank", "2"}, "tune: The following arguments were not expected"},
      {{"all_reduce"}, "tune: The following argument was not expected: all_reduce"}};
  for (const auto& [words, begin] : cases) {
    const std::string text = refusal([&, w = words] { (void)parse(w); });
    EXPECT_EQ(text.find(begin), 0U) << text;
  }
}

TEST(TuneOptions, WithoutAHomeAFileMustBeNamed) {
  const testing::Home home("");
  EXPECT_EQ(refusal([] { (void)parse({}, 2); }), "tune: neither XDG_CACHE_HOME nor HOME is set: say where with -o FILE");
  EXPECT_EQ(parse({"-o", "/tmp/tuning.json"}, 2).output, "/tmp/tuning.json");
}

TEST(TuneOptions, ARankOfAJobIsRefused) {
  const Variables job{{"TNT_SIZE", "2"}, {"TNT_RANK", "0"}};
  EXPECT_EQ(refusal([&] { (void)parse({}, 2, job); }).find("tune starts its own ranks"), 0U);
}

// Times with which the first algorithm is faster up to the limit, by this factor.
std::pair<SizeTimes, SizeTimes> crossing_at(std::size_t border, double factor) {
  std::pair<SizeTimes, SizeTimes> times;
  for (std::size_t size = 1; size <= 64; size *= 2) {
    times.first[size] = 10.0;
    times.second[size] = size <= border ? 10.0 * factor : 10.0 / factor;
  }
  return times;
}

TEST(ChooseBorder, IsWhereTheTimesCross) {
  for (std::size_t expected = 0; expected <= 7; ++expected) {
    const auto [below, above] = crossing_at((std::size_t{1} << expected) / 2, 1.2);
    EXPECT_EQ(choose_border(below, above, 3, 0), expected);
    EXPECT_EQ(choose_border(below, above, 3, 2), std::max<std::size_t>(expected, 2));
  }
}

TEST(ChooseBorder, StaysForADifferenceThatMayBeNoise) {
  for (const std::size_t border : {0U, 2U, 64U}) {
    const auto [below, above] = crossing_at(border, 1.02);
    EXPECT_EQ(choose_border(below, above, 3, 0), 3U);
  }
}

TEST(ChooseBorder, OneOddTimeDoesNotMoveIt) {
  auto [below, above] = crossing_at(16, 1.2);
  below[4] = 11.5;
  above[4] = 10.0;  // disturbed
  EXPECT_EQ(choose_border(below, above, 1, 0), 5U);
}

Measured flat_times(int ranks) {
  Measured measured;
  for (const Candidate& candidate : candidates_for(ranks)) {
    for (const std::size_t size : candidate.sizes) measured[candidate.name][size] = 10.0;
  }
  return measured;
}

TEST(Choose, EqualTimesLeaveTheDefault) {
  EXPECT_EQ(choose(flat_times(2)), Tuning{});
  EXPECT_EQ(choose(flat_times(32)), Tuning{});
}

TEST(Choose, EachBorderFollowsItsOwnTimes) {
  Measured measured = flat_times(4);
  measured["LL"][512] = measured["LL"][256] = 12.0;
  measured["one-shot"][16 << 10] = 8.0;
  measured["streaming"][256 << 10] = measured["streaming"][128 << 10] = 9.0;
  measured["64K chunks"][1 << 20] = measured["64K chunks"][4 << 20] = 9.0;
  EXPECT_EQ(choose(measured), (Tuning{128, 16 << 10, 128 << 10, 64 << 10}));
  for (auto& [size, time] : measured["streaming"]) time = 11.0;
  EXPECT_EQ(choose(measured).streaming_bytes, Tuning::never_streaming);
}

// As the library reads it.
void expect_same(const tnt::Tuning& library, const Tuning& ours) {
  EXPECT_EQ(library.ll_bytes, ours.ll_bytes);
  EXPECT_EQ(library.one_shot_bytes, ours.one_shot_bytes);
  EXPECT_EQ(library.streaming_bytes, ours.streaming_bytes);
  EXPECT_EQ(library.chunk_bytes, ours.chunk_bytes);
}

TEST(TuningTable, HasTheDefaultsAndLimitsOfTheLibrary) {
  expect_same(tnt::Tuning{}, Tuning{});
  expect_same({LLBuffer::max_bytes, tnt::Tuning::max_one_shot, tnt::Tuning::never_streaming, tnt::Tuning::min_chunk},
              {Tuning::max_ll, Tuning::max_one_shot, Tuning::never_streaming, Tuning::min_chunk});
  EXPECT_EQ(LLBuffer::max_members, Tuning::max_ll_ranks);
  EXPECT_EQ(tnt::TuningTable::max_entries, TuningTable::max_entries);
}

// Every border at either end.
TEST(TuningTable, IsReadByTheLibraryAndByTheNextTune) {
  for (const double factor : {0.5, 2.0}) {
    Measured measured = flat_times(2);
    for (auto& [size, time] : measured["one-shot"]) time *= factor;
    for (auto& [size, time] : measured["streaming"]) time *= factor;
    TuningTable table;
    table.set_default({.ll_bytes = 64});
    table.set(2, choose(measured));
    const std::string text = TuningTable(table.text()).text();
    EXPECT_EQ(text, table.text());
    const tnt::TuningTable read = tnt::TuningTable::from_json(text);
    expect_same(read.of(2), choose(measured));
    expect_same(tnt::TuningTable::from_json(TuningTable(R"({"schema": 2, "default": {"ll_bytes": 64, "one_shot_bytes": 1,
      "streaming_bytes": 2, "chunk_bytes": 40000}, "entries": []})")
                                                .text())
                    .of(5),
                {64, 1, 2, 40'000});
  }
}

TEST(TuningTable, WhatTheLibraryWouldRefuseIsRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"schema": 1, "default": {}, "entries": []})", R"({"schema": 2, "default": {}, "entries": []})",
        R"({"schema": 2, "default": {"ll_bytes": 513, "one_shot_bytes": 1, "streaming_bytes": 2,
                               "chunk_bytes": 40000}, "entries": []})",
        R"({"schema": 2, "default": {"ll_bytes": 1, "one_shot_bytes": 1, "streaming_bytes": 2,
                               "chunk_bytes": 4}, "entries": []})"}) {
    EXPECT_THROW((void)TuningTable(text), Failure) << text;
  }
}

TEST(AlgorithmAt, IsWhatTheLibraryTakes) {
  const Tuning tuning{256, 8 << 10, 512 << 10, 64 << 10};
  EXPECT_EQ(algorithm_at(tuning, 2, 256), "LL");
  EXPECT_EQ(algorithm_at(tuning, 17, 256), "one-shot");
  EXPECT_EQ(algorithm_at(tuning, 2, 512), "one-shot");
  EXPECT_EQ(algorithm_at(tuning, 2, 16 << 10), "two-shot");
  EXPECT_EQ(algorithm_at(Tuning{}, 2, 1 << 20), "streaming");
  EXPECT_EQ(algorithm_at(tuning, 2, 1 << 20), "streaming, 64K chunks");
}

TEST(WriteFile, ReplacesAndMakesDirectories) {
  const Scratch scratch;
  const std::string path = scratch / "new/directory/tuning.json";
  write_file(path, "old");
  write_file(path, "new");
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch / "new/directory"), {}), 1) << "something was left";
  EXPECT_NE(refusal([] { write_file("/proc/tuning.json", ""); }, 1).find("/proc/tuning.json: cannot be written"),
            std::string::npos);
}

// Two real ranks, every candidate once.
TEST(MeasureCandidates, EverySizeHasATime) {
  std::vector<Candidate> candidates = candidates_for(2);
  for (Candidate& candidate : candidates) candidate.sizes.resize(2);
  const Rounds rounds = measure_candidates(candidates, 2, 0.001, 3);
  EXPECT_EQ(rounds.rounds, 1);
  for (const Candidate& candidate : candidates) {
    for (const std::size_t size : candidate.sizes) EXPECT_GT(rounds.medians.at(candidate.name).at(size), 0) << candidate.name;
  }
}

}  // namespace
}  // namespace tnt::bench
