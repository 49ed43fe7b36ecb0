// Comparing two runs: noise is not a regression, and an invalid file is named with its line.
#include "benchmarks/compare.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "benchmarks/report.hpp"
#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::refusal;
using testing::row_of;
using testing::Scratch;

class CompareTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::vector<Row>& rows) {
    std::string text;
    for (const Row& row : rows) text += to_json(row, {"0.1.0", {}}).dump() + "\n";
    return scratch_.write(name, text);
  }

  int compare_rows(const std::vector<Row>& a, const std::vector<Row>& b, double threshold = 0.1) {
    std::FILE* file = std::fopen((scratch_ / "out").c_str(), "w");
    const int code = compare(write("a.jsonl", a), write("b.jsonl", b), threshold, file);
    std::fclose(file);
    printed_ = Scratch::read(scratch_ / "out");
    return code;
  }

  std::string refused(const std::string& a, const std::string& b) {
    std::FILE* file = std::fopen("/dev/null", "w");
    const std::string text = refusal([&] { (void)compare(a, b, 0.1, file); });
    std::fclose(file);
    return text;
  }

  [[nodiscard]] bool said(const std::string& text) const { return printed_.find(text) != std::string::npos; }

  Scratch scratch_;
  std::string printed_;
};

TEST_F(CompareTest, TheSameIsFine) {
  EXPECT_EQ(compare_rows({row_of(4, false), row_of(4, true)}, {row_of(4, true), row_of(4, false)}), 0);
  EXPECT_TRUE(said("2 rows compared: 0 slower, 0 faster")) << printed_;
}

TEST_F(CompareTest, SlowerByMoreThanThresholdAndNoiseIsARegression) {
  EXPECT_EQ(compare_rows({row_of(4, false, 10), row_of(8, false, 10)}, {row_of(4, false, 13), row_of(8, false, 10)}), 1);
  EXPECT_TRUE(said("x 1.300  SLOWER")) << printed_;
  EXPECT_TRUE(said("1 slower"));
}

TEST_F(CompareTest, InsideTheNoiseIsNone) {
  Row noisy = row_of(4, false, 10);
  noisy.times.p95 = 20;
  EXPECT_EQ(compare_rows({noisy}, {row_of(4, false, 13)}), 0);
  EXPECT_EQ(compare_rows({row_of(4, false, 10)}, {row_of(4, false, 13)}, 0.5), 0);
}

TEST_F(CompareTest, FasterIsSaid) {
  EXPECT_EQ(compare_rows({row_of(4, false, 20)}, {row_of(4, false, 10)}), 0);
  EXPECT_TRUE(said("faster")) << printed_;
}

TEST_F(CompareTest, WrongResultsAreARegressionHoweverFast) {
  Row wrong = row_of(4, false, 1);
  wrong.verdict.check = "wrong";
  EXPECT_EQ(compare_rows({row_of(4, false, 10)}, {wrong}), 1);
  EXPECT_TRUE(said("WRONG"));
}

TEST_F(CompareTest, MissingRowsAreListed) {
  EXPECT_EQ(compare_rows({row_of(4, false), row_of(1024, false)}, {row_of(4, false), row_of(4096, true)}), 0);
  EXPECT_TRUE(said("only in " + (scratch_ / "a.jsonl"))) << printed_;
  EXPECT_TRUE(said("only in " + (scratch_ / "b.jsonl"))) << printed_;
}

TEST_F(CompareTest, NothingInCommonIsAnError) {
  EXPECT_NE(refused(write("a", {row_of(4, false)}), write("b", {row_of(8, false)})).find("no measurement in common"),
            std::string::npos);
}

TEST_F(CompareTest, BadFilesAreNamedWithTheLine) {
  const std::string good = write("good", {row_of(4, false)});
  const std::string row = Scratch::read(good);
  EXPECT_EQ(refused(good, scratch_ / "missing"), (scratch_ / "missing") + ": cannot be read");
  EXPECT_EQ(refused(good, scratch_.write("empty", "\n")), (scratch_ / "empty") + ": no rows");
  EXPECT_EQ(refused(good, scratch_.write("text", row + "hello\n")).find((scratch_ / "text") + ":2: no row of tnt-bench"), 0U);
  EXPECT_EQ(refused(good, scratch_.write("keys", "{\"schema\": \"tnt-bench/1\"}\n")).find((scratch_ / "keys") + ":1: "), 0U);
  EXPECT_EQ(refused(good, scratch_.write("array", "[1]\n")).find((scratch_ / "array") + ":1: "), 0U);
  EXPECT_NE(refused(good, scratch_.write("twice", row + row)).find(":2: the same measurement as line 1"), std::string::npos);
  const std::string other = R"({"schema": "tnt-bench/2"})";
  EXPECT_NE(refused(good, scratch_.write("schema", other)).find("schema \"tnt-bench/2\" is not tnt-bench/1"),
            std::string::npos);
}

// Printed in the error, it would overflow the stack.
TEST_F(CompareTest, EndlessNestingIsRefused) {
  const std::string deep = R"({"schema": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  const std::string file = scratch_.write("deep", deep);
  EXPECT_EQ(refused(file, file), file + ":1: more than 16 levels of lists and objects");
}

TEST_F(CompareTest, ANumberThatIsNoIntegerIsRefused) {
  const std::string file =
      scratch_.write("large", R"({"schema": "tnt-bench/1", "collective": "a", "backend": "b", "ranks": 3e45})");
  EXPECT_EQ(refused(file, file), file + ":1: 3e+45 is no integer");
}

TEST_F(CompareTest, TheCommandLine) {
  const std::string a = write("a", {row_of(4, false, 10)});
  const std::string b = write("b", {row_of(4, false, 13)});
  const auto run = [](std::vector<const char*> argv) { return compare_main(static_cast<int>(argv.size()), argv.data()); };
  EXPECT_EQ(run({"compare", a.c_str(), b.c_str()}), 1);
  EXPECT_EQ(run({"compare", a.c_str(), b.c_str(), "--threshold", "50%"}), 0);
  EXPECT_EQ(run({"compare", "--threshold", "0.5", a.c_str(), b.c_str()}), 0);
  EXPECT_NE(refusal([&] { (void)run({"compare", a.c_str()}); }).find("FILES"), std::string::npos);
  EXPECT_EQ(refusal([&] { (void)run({"compare", a.c_str(), b.c_str(), "--threshold", "-1"}); }).find("--threshold -1: "), 0U);
}

}  // namespace
}  // namespace tnt::bench
