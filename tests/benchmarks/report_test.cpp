// Machine-readable rows: the JSON schema, CSV, Markdown, and errors when writing a file.
#include "benchmarks/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::lines_of;
using testing::parse_line;
using testing::row_of;
using testing::Scratch;

const Header header{"0.1.0", {{"cpu", "AMD EPYC, \"2\" cores"}, {"mpi", "Open MPI 4.1.4"}}};

std::string report(const std::string& flags, const std::vector<Row>& rows) {
  const Scratch scratch;
  {
    Report report(parse_line(flags + " -o " + (scratch / "out")));
    report.header(header);
    for (const Row& row : rows) report.row(row);
    report.footer();
  }
  return Scratch::read(scratch / "out");
}

TEST(Report, BusBandwidthAsNcclTestsDefinesIt) {
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 1), 0);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::bucket, 4), 1.5);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::all_to_all_v, 4), 0.75);
  EXPECT_DOUBLE_EQ(busbw_factor(Collective::sendrecv, 4), 1);
}

TEST(Report, EveryLineOfJsonlIsARowWithAllKeys) {
  Row row = row_of(1024, false);
  row.against = "mpi";
  row.against_times = row.times;
  row.against_times->p50 = 25;
  row.ratio = 2.5;
  const std::vector<std::string> lines = lines_of(report("--format jsonl", {row, row_of(1024, true)}));
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line);
    for (const char* key : {"schema",
                            "collective",
                            "backend",
                            "ranks",
                            "bytes",
                            "dtype",
                            "op",
                            "in_place",
                            "time_us_p50",
                            "time_us_p95",
                            "algbw_gbps",
                            "busbw_gbps",
                            "limit_percent",
                            "wrong",
                            "check",
                            "against",
                            "against_time_us_p50",
                            "ratio",
                            "count",
                            "root",
                            "cache",
                            "unalign",
                            "time_us_min",
                            "time_us_max",
                            "iterations",
                            "first_us",
                            "max_ulp",
                            "hash",
                            "label",
                            "extra",
                            "environment"}) {
      EXPECT_TRUE(json.contains(key)) << key;
    }
    EXPECT_EQ(json["schema"], "tnt-bench/1");
    EXPECT_EQ(json["environment"]["mpi"], "Open MPI 4.1.4");
    EXPECT_EQ(json["environment"]["tarantella"], "0.1.0");
    EXPECT_EQ(json["hash"], "0000000000001234");
    EXPECT_EQ(json["wrong"], 0);
  }
  const auto first = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(first["against"], "mpi");
  EXPECT_DOUBLE_EQ(first["against_time_us_p50"], 25);
  EXPECT_DOUBLE_EQ(first["ratio"], 2.5);
  EXPECT_DOUBLE_EQ(first["time_us_p95"], 11);
  EXPECT_EQ(first["in_place"], false);
  EXPECT_TRUE(nlohmann::json::parse(lines[1])["against"].is_null());
  EXPECT_TRUE(nlohmann::json::parse(lines[1])["ratio"].is_null());
}

TEST(Report, WhatWasNotCheckedIsNotRight) {
  Row row = row_of(0, false);
  row.collective = Collective::barrier;
  row.verdict = {};
  row.algbw_gbps.reset();
  const auto json = to_json(row, header);
  EXPECT_EQ(json["check"], "off");
  for (const char* key : {"wrong", "max_ulp", "hash", "algbw_gbps"}) EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_EQ(json["op"], "none");
}

TEST(Report, ExtraFiguresAndErrors) {
  Row row = row_of(1024, true);
  row.extra = {{"pack_us", 12.3}, {"buckets", 26}};
  row.verdict = {.wrong = 3, .check = "wrong", .text = "rank 1: element 7"};
  const auto json = to_json(row, header);
  EXPECT_DOUBLE_EQ(json["extra"]["pack_us"], 12.3);
  EXPECT_EQ(json["error"], "rank 1: element 7");
  EXPECT_EQ(json["wrong"], 3);
}

TEST(Report, RowsAreThereAsSoonAsTheyAreMeasured) {
  const Scratch scratch;
  Report report(parse_line("--format jsonl -o " + (scratch / "out")));
  report.header(header);
  report.row(row_of(4, false));
  EXPECT_EQ(lines_of(Scratch::read(scratch / "out")).size(), 1U);
}

TEST(Report, CsvHasOneTitleAndQuotesWhatNeedsIt) {
  Row row = row_of(1024, false);
  row.label = "conv, first";
  const std::vector<std::string> lines = lines_of(report("--format csv", {row, row_of(4096, false)}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].find("schema,collective,backend,ranks,bytes,"), 0U);
  EXPECT_EQ(lines[1].find("tnt-bench/1,all_reduce,shm,2,1024,256,\"conv, first\",float32,sum,-1,false,"), 0U) << lines[1];
  EXPECT_NE(lines[1].find(R"("tarantella=0.1.0; cpu=AMD EPYC, ""2"" cores; mpi=Open MPI 4.1.4")"), std::string::npos)
      << lines[1];
}

TEST(Report, Markdown) {
  Row row = row_of(1024, false);
  row.against = "mpi";
  row.against_times = row.times;
  row.ratio = 2.5;
  const std::string text = report("--format md", {row});
  EXPECT_NE(text.find("* cpu: AMD EPYC"), std::string::npos);
  EXPECT_NE(
      text.find("| all_reduce | shm | 2 | 1K | float32 | sum | out | 10.00 | 11.00 | 0.10 | 0.10 | 40.0 | ok | 10.00 | 2.50 |"),
      std::string::npos)
      << text;
}

TEST(Report, ARankThatDoesNotWriteLeavesTheFileAlone) {
  const Scratch scratch;
  Report report(parse_line("-o " + (scratch / "out")), false);
  report.header(header);
  report.row(row_of(4, false));
  report.footer();
  EXPECT_FALSE(std::filesystem::exists(scratch / "out"));
}

TEST(Report, AFullDiskIsSaid) {
  Report report(parse_line("--format jsonl -o /dev/full"));
  report.header(header);
  const std::string text = testing::refusal([&] { report.row(row_of(4, false)); }, 1);
  EXPECT_EQ(text.find("cannot write /dev/full: "), 0U) << text;
}

}  // namespace
}  // namespace tnt::bench
