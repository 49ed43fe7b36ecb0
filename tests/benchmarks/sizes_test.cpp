// Sizes: suffixes, ranges, lists, models, files; and invalid ones.
#include "benchmarks/sizes.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::refusal;

std::vector<std::size_t> bytes_of(const std::vector<Size>& sizes) {
  std::vector<std::size_t> bytes;
  for (const Size& size : sizes) bytes.push_back(size.bytes);
  return bytes;
}

TEST(Sizes, SuffixesAreBinary) {
  EXPECT_EQ(parse_size("-b", "4"), 4U);
  EXPECT_EQ(parse_size("-b", "4B"), 4U);
  EXPECT_EQ(parse_size("-b", "1K"), 1024U);
  EXPECT_EQ(parse_size("-b", "1k"), 1024U);
  EXPECT_EQ(parse_size("-b", "2g"), std::size_t{2} << 30);
  EXPECT_EQ(parse_size("-b", "64M"), 64U << 20);
  EXPECT_EQ(parse_size("-b", "64MB"), 64U << 20);
  EXPECT_EQ(parse_size("-b", "64MiB"), 64U << 20);
  EXPECT_EQ(parse_size("-b", "1.5G"), 3UL << 29);
  EXPECT_EQ(parse_size("-b", "0.5K"), 512U);
  EXPECT_EQ(parse_size("-b", "2T"), 2UL << 40);
}

TEST(Sizes, NonsenseIsRefusedWithFlagAndValue) {
  for (const char* text : {"", "-4", "0", "x", "4X", "K", "4KK", "4 K", "1e3", "nan", "inf", "0x10", "+4", "4Kb", "0.0001"}) {
    const std::string line = refusal([text] { (void)parse_size("-b", text); });
    EXPECT_EQ(line.find("-b "), 0U) << line;
    EXPECT_NE(line.find(*text == '\0' ? "''" : text), std::string::npos) << line;
  }
  EXPECT_EQ(refusal([] { (void)parse_size("-e", "1.3K"); }), "-e 1.3K: not a whole number of bytes");
  EXPECT_EQ(refusal([] { (void)parse_size("-e", "99999999999999999999T"); }), "-e 99999999999999999999T: above 1024T");
}

TEST(Sizes, AreShownAsTheyAreTyped) {
  for (const char* text : {"4", "1000", "1K", "1536", "64M", "3G"}) EXPECT_EQ(format_size(parse_size("-b", text)), text);
  EXPECT_EQ(format_size(0), "0");
}

TEST(Sizes, RangeByFactor) {
  EXPECT_EQ(bytes_of(sizes_of({.begin = 4, .end = 1024, .factor = 4}, 4)), (std::vector<std::size_t>{4, 16, 64, 256, 1024}));
  EXPECT_EQ(bytes_of(sizes_of({.begin = 4, .end = 1000, .factor = 4}, 4)), (std::vector<std::size_t>{4, 16, 64, 256}));
  EXPECT_EQ(bytes_of(sizes_of({.begin = 8, .end = 8, .factor = 2}, 4)), (std::vector<std::size_t>{8}));
}

TEST(Sizes, RangeByFactorStaysAtWholeElements) {
  EXPECT_EQ(bytes_of(sizes_of({.begin = 8, .end = 42, .factor = 1.5}, 8)), (std::vector<std::size_t>{8, 16, 24, 40}));
}

TEST(Sizes, RangeBySteps) {
  EXPECT_EQ(bytes_of(sizes_of({.begin = 1024, .end = 4096, .step = 1024}, 4)),
            (std::vector<std::size_t>{1024, 2048, 3072, 4096}));
}

TEST(Sizes, TooManyAreRefused) {
  EXPECT_NE(refusal([] { (void)sizes_of({.begin = 4, .end = 1 << 30, .step = 4}, 4); }).find("more than 10000 sizes"),
            std::string::npos);
}

// Found while fuzzing: steps of less than an element gave no size, and went on for hours.
TEST(Sizes, StepsThatLeadNowhereAreRefused) {
  for (const Range& range :
       {Range{.begin = 4, .end = 64 << 20, .factor = 1 + 1e-12}, Range{.begin = 4, .end = 64 << 20, .factor = 1 + 1e-16},
        Range{.begin = 8, .end = std::size_t{1} << 50, .step = 1}}) {
    EXPECT_NE(refusal([&] { (void)sizes_of(range, 8); }).find("take a larger -f or -i"), std::string::npos);
  }
}

TEST(Sizes, Lists) {
  EXPECT_EQ(bytes_of(parse_sizes("1M,1K,1K,4", 4)), (std::vector<std::size_t>{1 << 20, 1024, 4}));
  for (const char* text : {"1K,", ",", "1K,x", "-1"}) {
    EXPECT_EQ(refusal([text] { (void)parse_sizes(text, 4); }).find("--sizes "), 0U) << text;
  }
}

TEST(Sizes, OfAModelAreItsDifferentTensorsAscending) {
  const std::vector<Size> sizes = parse_sizes("@resnet50", 4);
  ASSERT_GT(sizes.size(), 10U);
  EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end(), [](const Size& a, const Size& b) { return a.bytes < b.bytes; }));
  EXPECT_EQ(sizes.front().bytes, 64U * 4);
  EXPECT_EQ(sizes.back().bytes, 3U * 3 * 512 * 512 * 4);
  EXPECT_EQ(sizes.back().label, "conv5_block1_2_conv/kernel (x3)");
  EXPECT_EQ(parse_sizes("@resnet50", 2).front().bytes, 64U * 2);
  EXPECT_EQ(refusal([] { (void)parse_sizes("@vgg", 4); }),
            "--sizes @vgg: no such model; there are resnet50, transformer_big, bert_large");
}

TEST(Sizes, Files) {
  const testing::Scratch scratch;
  const std::string path = scratch.write("sizes.txt", "# mine\n1K first layer \n\n  4K # comment\n1K\n64M\tlast\r\n");
  const std::vector<Size> sizes = parse_sizes(path, 4);
  EXPECT_EQ(bytes_of(sizes), (std::vector<std::size_t>{1024, 4096, 1024, 64 << 20}));
  EXPECT_EQ(sizes[0].label, "first layer");
  EXPECT_EQ(sizes[1].label, "");
  EXPECT_EQ(sizes[3].label, "last");
}

TEST(Sizes, BadFilesAreNamedWithTheLine) {
  const testing::Scratch scratch;
  const std::string bad = scratch.write("bad.txt", "1K\n-4 x\n");
  EXPECT_NE(refusal([&] { (void)parse_sizes(bad, 4); }).find("bad.txt line 2: -4: not a size"), std::string::npos);
  const std::string empty = scratch.write("empty.txt", "# nothing\n");
  EXPECT_NE(refusal([&] { (void)parse_sizes(empty, 4); }).find("without sizes"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)parse_sizes(scratch / "missing.txt", 4); }).find("missing.txt: neither"), std::string::npos);
}

}  // namespace
}  // namespace tnt::bench
