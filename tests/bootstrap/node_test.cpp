// What the ranks of a node take from rank 0 when they join: its tuning, whatever their own settings are.
#include "bootstrap/node.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() {
    if (mkdtemp(directory_.data()) == nullptr) throw std::runtime_error("no temporary directory");
  }
  ~NodeTest() override { std::filesystem::remove_all(directory_); }

  std::string file_with(std::size_t ll_bytes) {
    std::string path = directory_ + "/" + std::to_string(ll_bytes);
    std::ofstream(path) << R"({"schema": 2, "entries": [{"ranks": 2, "ll_bytes": )" << ll_bytes << "}]}";
    return path;
  }

  // The ll_bytes of two ranks, given their tuning files.
  [[nodiscard]] static std::vector<std::size_t> taken(const std::vector<std::string>& named,
                                                      const std::vector<std::string>& cached) {
    const std::string rendezvous = "tnt-node-test-" + std::to_string(std::random_device()());
    std::vector<std::future<std::size_t>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Settings settings;
      settings.rank = rank;
      settings.ranks = 2;
      settings.rendezvous = rendezvous;
      settings.token = "secret";
      settings.timeout = 30.0;
      settings.tuning = named[static_cast<std::size_t>(rank)];
      settings.tuning_cache = cached[static_cast<std::size_t>(rank)];
      ranks.push_back(std::async(std::launch::async, [settings] { return join_node(settings)->tuning(2).ll_bytes; }));
    }
    return {ranks[0].get(), ranks[1].get()};
  }

  std::string directory_ = ::testing::TempDir() + "tnt_node_XXXXXX";
};

using Taken = std::vector<std::size_t>;

TEST_F(NodeTest, AllTakeTheTuningOfRankZero) {
  const std::string a = file_with(64);
  const std::string b = file_with(128);
  EXPECT_EQ(taken({a, b}, {"", ""}), (Taken{64, 64}));
  EXPECT_EQ(taken({b, a}, {"", ""}), (Taken{128, 128}));
  EXPECT_EQ(taken({"", a}, {"", a}), (Taken{512, 512}));
}

TEST_F(NodeTest, TheNamedFileComesBeforeTheCachedOne) {
  const std::string a = file_with(64);
  const std::string b = file_with(128);
  EXPECT_EQ(taken({"", ""}, {b, a}), (Taken{128, 128}));
  EXPECT_EQ(taken({a, ""}, {b, b}), (Taken{64, 64}));
  EXPECT_EQ(taken({"", ""}, {"/no/such/file", "/no/such/file"}), (Taken{512, 512}));
}

// The second rank asks after the first has joined.
TEST(Node, ItsRanksKnowTheirDomains) {
  for (const auto& [size, domains] : {std::pair{1, std::vector<std::uint32_t>{1, 2}}, {2, {1, 1}}}) {
    Settings settings;
    settings.ranks = 2;
    settings.rendezvous = "tnt-node-test-" + std::to_string(std::random_device()());
    settings.token = "secret";
    settings.timeout = 30.0;
    settings.domain = size;
    auto first = std::async(std::launch::async, [settings] { return join_node(settings); });
    settings.rank = 1;
    const auto second = join_node(settings);
    const auto kept = first.get();
    EXPECT_EQ(kept->domains({0, 1}), domains);
    EXPECT_EQ(second->domains({0, 1}), domains);
  }
}

}  // namespace
}  // namespace tnt
