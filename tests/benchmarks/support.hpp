// Shared by the tests of tnt-bench: command lines, temporary files, rows.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/options.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench::testing {

// The environment's HOME, and no XDG_CACHE_HOME, while it lives; "" for none.
class Home {
 public:
  explicit Home(const std::string& path) : before_(std::getenv("HOME") == nullptr ? "" : std::getenv("HOME")) {
    unsetenv("XDG_CACHE_HOME");
    set(path);
  }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;
  ~Home() { set(before_); }

 private:
  static void set(const std::string& path) { path.empty() ? unsetenv("HOME") : setenv("HOME", path.c_str(), 1); }
  std::string before_;
};

inline std::vector<const char*> arguments(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"tnt-bench"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return argv;
}

inline Options parse_words(const std::vector<std::string>& words) {
  const std::vector<const char*> argv = arguments(words);
  return parse(static_cast<int>(argv.size()), argv.data());
}

// "-b  4 -e 64M": separated by spaces.
inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline Options parse_line(const std::string& line) { return parse_words(words_of(line)); }

// The text of the Failure that f throws, which must have this code and be one line. If f does not throw, fails the test and
// returns "".
template <typename F>
std::string refusal(F&& f, int code = 2) {
  try {
    f();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    const std::string text = failure.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// A temporary directory for this test.
class Scratch {
 public:
  Scratch() : path_(::testing::TempDir() + "tnt_bench_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name) << text;
    return *this / name;
  }
  [[nodiscard]] static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline Row row_of(std::size_t bytes, bool in_place, double p50 = 10.0) {
  Row row;
  row.backend = "shm";
  row.ranks = 2;
  row.bytes = bytes;
  row.count = bytes / 4;
  row.in_place = in_place;
  row.times = {.iterations = 100, .min = 0.9 * p50, .p50 = p50, .p95 = 1.1 * p50, .max = 2 * p50, .first = 9 * p50};
  row.algbw_gbps = static_cast<double>(bytes) / p50 * 1e-3;
  row.busbw_gbps = row.algbw_gbps;
  row.limit_percent = 40.0;
  row.verdict.check = "ok";
  row.verdict.hash = 0x1234;
  return row;
}

}  // namespace tnt::bench::testing
