// The table: the columns of nccl-tests in their order; out of place and in place in one line.
#include "benchmarks/report.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::lines_of;
using testing::parse_line;
using testing::row_of;
using testing::Scratch;

std::vector<std::string> table(const std::string& flags, const std::vector<Row>& rows) {
  const Scratch scratch;
  {
    Report report(parse_line(flags + " -o " + (scratch / "out")));
    report.header({"0.1.0", {{"cpu", "AMD EPYC"}}});
    for (const Row& row : rows) report.row(row);
    report.footer();
  }
  return lines_of(Scratch::read(scratch / "out"));
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

std::vector<std::string> without_comments(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
  return lines;
}

std::string line_with(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) return line;
  }
  ADD_FAILURE() << "no line with " << text;
  return "";
}

TEST(Table, HasTheColumnsOfNcclTests) {
  const auto lines = table("-b 1K -e 1K --limit off", {row_of(1024, false), row_of(1024, true)});
  EXPECT_EQ(words(line_with(lines, "#        size")),
            (std::vector<std::string>{"#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
                                      "algbw", "busbw", "#wrong"}));
  EXPECT_EQ(words(line_with(lines, "out-of-place")), (std::vector<std::string>{"#", "out-of-place", "in-place"}));
  EXPECT_EQ(words(line_with(lines, "(elements)")),
            (std::vector<std::string>{"#", "(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)"}));
  const auto rows = without_comments(lines);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(words(rows[0]), (std::vector<std::string>{"1024", "256", "float32", "sum", "-1", "10.00", "0.10", "0.10", "0",
                                                      "10.00", "0.10", "0.10", "0"}));
  EXPECT_EQ(line_with(lines, "Out of bounds"), "# Out of bounds values : 0 OK");
  EXPECT_EQ(line_with(lines, "Avg bus"), "# Avg bus bandwidth    : 0.1024");
}

TEST(Table, TitlesStandOverTheirColumns) {
  const auto lines = table("-b 1K -e 1K --against mpi", {row_of(1024, false), row_of(1024, true)});
  const std::string title = line_with(lines, "#        size");
  EXPECT_EQ(title.size(), without_comments(lines).at(0).size());
  EXPECT_EQ(words(title).size(), 13U + 1 + 2 * 3);
}

TEST(Table, PlacesOfASizeMeetWhateverComesBetween) {
  Row mpi_out = row_of(1024, false, 20);
  Row mpi_in = row_of(1024, true, 30);
  mpi_out.backend = mpi_in.backend = "mpi";
  const auto rows = without_comments(table("--sizes 1K,4K --backend shm,mpi --limit off",
                                           {row_of(1024, false), mpi_out, row_of(1024, true), mpi_in, row_of(4096, false)}));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(words(rows[0]).at(5), "10.00");
  EXPECT_EQ(words(rows[0]).back(), "shm");
  EXPECT_EQ(words(rows[1]).at(5), "20.00");
  EXPECT_EQ(words(rows[1]).at(9), "30.00");
  EXPECT_EQ(words(rows[1]).back(), "mpi");
  EXPECT_EQ(words(rows[2]).at(9), "-");  // the in-place row is missing
}

TEST(Table, OnePlaceOnly) {
  const auto rows = without_comments(table("--sizes 1K --place in", {row_of(1024, true)}));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(words(rows[0]),
            (std::vector<std::string>{"1024", "256", "float32", "sum", "-1", "10.00", "0.10", "0.10", "0", "40.0"}));
}

TEST(Table, PeerAndRatio) {
  Row row = row_of(1024, false);
  row.against = "mpi";
  row.against_times = row.times;
  row.against_times->p50 = 40;
  row.ratio = 4;
  Row slower = row_of(4096, false);
  slower.against = "mpi";
  slower.ratio = 1;
  const auto lines = table("--sizes 1K,4K --place out --against mpi", {row, slower});
  EXPECT_EQ(words(line_with(lines, "#        size")).back(), "ratio");
  const auto cells = words(without_comments(lines).at(0));
  EXPECT_EQ((std::vector<std::string>{cells.end() - 3, cells.end()}), (std::vector<std::string>{"40.0", "40.00", "4.00"}));
  EXPECT_NE(line_with(lines, "# Ratio to mpi").find(": 2.00 (geometric mean"), std::string::npos);
}

TEST(Table, WrongResultsAreSaidUnderTheirLineAndAtTheEnd) {
  Row row = row_of(1024, true);
  row.verdict = {.wrong = 3, .check = "wrong", .text = "rank 1: element 7 is 0x0: rank 1 is missing"};
  const auto lines = table("--sizes 1K", {row_of(1024, false), row});
  EXPECT_EQ(line_with(lines, "WRONG"), "# WRONG, shm, in-place: rank 1: element 7 is 0x0: rank 1 is missing");
  EXPECT_EQ(line_with(lines, "Out of bounds"), "# Out of bounds values : 3 FAILED");
}

TEST(Table, ACheckThatFailsWithoutAWrongElementFailsToo) {
  Row row = row_of(1024, false);
  row.verdict = {.check = "wrong", .text = "rank 1 has other bits than rank 0"};
  EXPECT_EQ(line_with(table("--sizes 1K --place out", {row}), "Out of bounds"), "# Out of bounds values : 1 FAILED");
}

TEST(Table, WhatWasNotCheckedIsNotZero) {
  Row row = row_of(1024, false);
  row.verdict = {};
  EXPECT_EQ(words(without_comments(table("--sizes 1K --place out", {row})).at(0)).at(8), "N/A");
}

TEST(Table, ExtraFiguresHaveColumns) {
  Row row = row_of(102'334'368, true, 123'456'789);
  row.collective = Collective::bucket;
  row.label = "resnet50";
  row.extra = {{"buckets", 26}, {"pack_us", 1234.5}};
  const auto lines = table("bucket", {row});
  const auto title = words(line_with(lines, "#        size"));
  EXPECT_EQ((std::vector<std::string>{title.end() - 3, title.end()}),
            (std::vector<std::string>{"label", "buckets", "pack_us"}));
  const auto cells = words(without_comments(lines).at(0));
  EXPECT_EQ(cells.at(5), "123456789");
  EXPECT_EQ((std::vector<std::string>{cells.end() - 3, cells.end()}), (std::vector<std::string>{"resnet50", "26", "1234.50"}));
}

}  // namespace
}  // namespace tnt::bench
