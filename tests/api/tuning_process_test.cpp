// TNT_INTERNAL_TUNING with several processes: all ranks use rank 0's table; a file named by the user must be valid, a cached
// one is ignored if it is not.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

constexpr const char* always_lines = R"({"schema": 2, "default": {"ll_bytes": 512, "one_shot_bytes": 65536}})";
constexpr const char* always_chunks =
    R"({"schema": 2, "default": {"ll_bytes": 0, "one_shot_bytes": 0, "streaming_bytes": 0, "chunk_bytes": 32768}})";

class TuningProcessTest : public ::testing::Test {
 protected:
  TuningProcessTest() {
    if (mkdtemp(directory_.data()) == nullptr) throw std::runtime_error("no temporary directory");
  }
  ~TuningProcessTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  [[nodiscard]] std::string cached_name() const {
    std::array<char, 256> host{};
    EXPECT_EQ(gethostname(host.data(), host.size() - 1), 0);
    return std::string("tarantella/tuning-") + host.data() + ".json";
  }
  std::string directory_ = ::testing::TempDir() + "tnt_tuning_XXXXXX";
};

// At sizes around all limits, in the communicator of all ranks and in one of some ranks.
void sum_all_sizes() {
  const Joined job;
  tnt_comm_t part = nullptr;
  check(tnt_comm_split(job.world, job.rank / 2, job.rank, &part));
  int ranks_of_part = 0;
  check(tnt_comm_size(part, &ranks_of_part));
  for (const auto& [comm, ranks] : {std::pair{job.world, job.size}, {part, ranks_of_part}}) {
    for (const std::size_t count : {1U, 128U, 129U, 2048U, 2049U, 16384U, 20'000U, 200'000U}) {
      std::vector<float> values(count, 1.0F);
      check(tnt_all_reduce(comm, values.data(), values.data(), count, TNT_FLOAT32, TNT_SUM, nullptr, nullptr));
      EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(ranks))) << count << " elements";
    }
  }
  check(tnt_comm_destroy(part));
}

TEST_F(TuningProcessTest, RanksWithDifferentFilesAgree) {
  const std::string lines = write("lines.json", always_lines);
  const std::string chunks = write("chunks.json", always_chunks);
  for (const bool swapped : {false, true}) {
    run_processes(3, [&](int rank) {
      setenv("TNT_INTERNAL_TUNING", (rank == 0) == swapped ? chunks.c_str() : lines.c_str(), 1);
      sum_all_sizes();
    });
  }
}

TEST_F(TuningProcessTest, AFileThatOtherRanksLackIsNoMatter) {
  const std::string chunks = write("chunks.json", always_chunks);
  run_processes(2, [&](int rank) {
    setenv("TNT_INTERNAL_TUNING", rank == 0 ? chunks.c_str() : "/no/such/file", 1);
    sum_all_sizes();
  });
}

TEST_F(TuningProcessTest, NonsenseInANamedFileIsToldToAllRanks) {
  const std::string file = write("wrong.json", R"({"schema": 2, "entries": [{"ranks": 2, "one_shot_bytes": -5}]})");
  const std::string message = "tuning file " + file +
                              ": entries[0].one_shot_bytes is -5: expected a whole number from 0 to 65536; make a new one with "
                              "`tnt-bench tune -o FILE`";
  run_processes(3, [&](int rank) {
    if (rank == 0) setenv("TNT_INTERNAL_TUNING", file.c_str(), 1);
    EXPECT_EQ(tnt_init(nullptr), TNT_INVALID_ARGUMENT);
    EXPECT_EQ(tnt_last_error(), message);
  });
}

TEST_F(TuningProcessTest, TheHostsCacheIsTaken) {
  write(cached_name(), always_chunks);
  run_processes(2, [](int) { sum_all_sizes(); },
                {.environment = {{"XDG_CACHE_HOME", directory_}, {"TNT_INTERNAL_TUNING", ""}}});
}

TEST_F(TuningProcessTest, NonsenseInTheCacheIsIgnoredWithOneWarning) {
  const std::string file = write(cached_name(), "{");
  const std::string log = directory_ + "/log";
  run_processes(2,
                [&](int) {
                  EXPECT_NE(freopen(log.c_str(), "a", stderr), nullptr);
                  sum_all_sizes();
                },
                {.environment = {{"XDG_CACHE_HOME", directory_}, {"TNT_INTERNAL_TUNING", ""}}});
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  EXPECT_EQ(text.str(), "tarantella[0]: warning: ignored: tuning file " + file +
                            ": the text is not JSON; make a new one with `tnt-bench tune -o FILE`\n");
}

}  // namespace
