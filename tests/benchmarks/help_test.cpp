// Every flag that --help shows is accepted, and rejects invalid values.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::lines_of;
using testing::parse_words;

std::string answer_to(const std::string& flag) {
  try {
    (void)parse_words({flag});
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), 0) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << flag << " printed nothing";
  return "";
}

// The flags at the beginning of the help's lines, in order: {"-b", "--minbytes"}.
std::vector<std::vector<std::string>> flags_of(const std::string& help) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& line : lines_of(help)) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("^  (-[A-Za-z],)?(--[a-z_-]+) "))) continue;
    std::vector<std::string>& names = all.emplace_back();
    if (match[1].matched) names.push_back(match[1].str().substr(0, 2));
    names.push_back(match[2]);
  }
  return all;
}

// A flag without a value accepts none.
struct Example {
  std::string collective;
  std::string sense;
  std::string nonsense;
};

const std::map<std::string, Example>& examples() {
  static const std::map<std::string, Example> all{
      {"--datatype", {"all_reduce", "bf16", "f31"}},
      {"--op", {"all_reduce", "max", "plus"}},
      {"--root", {"broadcast", "1", "-1"}},
      {"--model", {"bucket", "bert_large", "vgg"}},
      {"--tensors", {"bucket -b 64K", "4", "0"}},
      {"--fusion-threshold", {"bucket", "1M", "-1"}},
      {"--wire-dtype", {"bucket", "bfloat16", "int8"}},
      {"--determinism", {"bucket", "ranks", "none"}},
      {"--compute-ms", {"overlap", "10", "-1"}},
      {"--minbytes", {"all_reduce", "1K", "-4"}},
      {"--maxbytes", {"all_reduce", "1M", "x"}},
      {"--stepfactor", {"all_reduce", "2", "1"}},
      {"--stepbytes", {"all_reduce", "1M", "0"}},
      {"--sizes", {"all_reduce", "1K,1M", "@vgg"}},
      {"--ranks", {"all_reduce", "2", "0"}},
      {"--backend", {"all_reduce", "shm,mpi", "tcp"}},
      {"--platform", {"all_reduce --backend simulated --ranks 2", "/dev/null", "/no/such/file"}},
      {"--against", {"all_reduce", "gloo", "tcp"}},
      {"--iters", {"all_reduce", "10", "0"}},
      {"--warmup_iters", {"all_reduce", "10", "-1"}},
      {"--target", {"all_reduce", "1%", "3"}},
      {"--max-time", {"all_reduce", "0.5", "0"}},
      {"--timeout", {"all_reduce", "10", "-1"}},
      {"--cache", {"all_reduce", "hot", "cold"}},
      {"--place", {"all_reduce", "in", "inside"}},
      {"--unalign", {"all_reduce", "1", "-1"}},
      {"--check", {"all_reduce", "exact", "some"}},
      {"--limit", {"all_reduce", "off", "-3"}},
      {"--seed", {"all_reduce", "7", "x"}},
      {"--output", {"all_reduce", "/tmp/out.jsonl", "/no/such/directory/file"}},
      {"--format", {"all_reduce", "csv", "xml"}},
      {"--dry-run", {"all_reduce", "", ""}},
  };
  return all;
}

TEST(Help, EveryFlagItShowsIsAcceptedAndRefusesNonsense) {
  std::set<std::string> seen;
  for (const std::vector<std::string>& names : flags_of(answer_to("--help"))) {
    const std::string& longest = names.back();
    seen.insert(longest);
    if (longest == "--help" || longest == "--version") continue;
    ASSERT_TRUE(examples().contains(longest)) << longest << " is in the help text, but this test has no example for it";
    const Example& example = examples().at(longest);
    for (const std::string& name : names) {
      std::vector<std::string> words = testing::words_of(example.collective);
      words.push_back(name);
      if (!example.sense.empty()) words.push_back(example.sense);
      EXPECT_NO_THROW((void)parse_words(words)) << name;
      if (example.nonsense.empty()) continue;
      words.back() = example.nonsense;
      const std::string text = testing::refusal([&words] { (void)parse_words(words); });
      EXPECT_NE(text.find(example.nonsense), std::string::npos) << text;
    }
  }
  for (const auto& [flag, example] : examples()) EXPECT_TRUE(seen.contains(flag)) << flag << " is not in the help text";
}

TEST(Help, FitsIntoATerminal) {
  for (const std::string& line : lines_of(answer_to("-h"))) EXPECT_LE(line.size(), 110U) << line;
}

TEST(Help, NamesTheDifferenceToNcclTests) {
  EXPECT_NE(answer_to("--help").find("-o is nccl-tests' operation"), std::string::npos);
}

TEST(Help, VersionIsTheLibrarys) { EXPECT_EQ(answer_to("--version"), std::string("tnt-bench ") + tnt_version()); }

TEST(Help, AFlagWithoutItsValueIsNamed) {
  const std::string text = testing::refusal([] { (void)parse_words({"--ranks"}); });
  EXPECT_NE(text.find("--ranks"), std::string::npos) << text;
}

TEST(Help, AFlagGivenTwiceIsNamed) {
  const std::string text = testing::refusal([] { (void)parse_words({"-b", "4", "-b", "8"}); });
  EXPECT_NE(text.find("--minbytes"), std::string::npos) << text;
}

}  // namespace
}  // namespace tnt::bench
