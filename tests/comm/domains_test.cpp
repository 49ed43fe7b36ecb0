// Domains: what the system's files say of the cores of this thread, which members have two levels, and how many lines then go
// between domains.
#include "comm/shm/domains.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <thread>

namespace tnt {
namespace {

using Borders = std::vector<std::size_t>;

// A tree of the system's files.
class FindDomain : public ::testing::Test {
 protected:
  FindDomain() {
    if (mkdtemp(root_.data()) == nullptr) throw std::runtime_error("no temporary directory");
    cpu_set_t own;
    EXPECT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &own)) cores_.push_back(core);
    }
  }
  ~FindDomain() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root_) / "sys/devices/system" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void write_cache(int index, int level, const std::string& cores) const {
    const std::string cache = "cpu/cpu" + std::to_string(cores_[0]) + "/cache/index" + std::to_string(index) + "/";
    write(cache + "level", std::to_string(level));
    write(cache + "shared_cpu_list", cores);
  }
  [[nodiscard]] std::string all() const { return std::to_string(cores_.front()) + "-" + std::to_string(cores_.back()); }
  [[nodiscard]] static std::uint32_t domain(int cores, int first) {
    return static_cast<std::uint32_t>(cores << domain_bits | (first + 1));
  }

  std::string root_ = ::testing::TempDir() + "tnt_domains_XXXXXX";
  std::vector<int> cores_;  // of this thread
};

TEST_F(FindDomain, IsThatOfTheLastLevelCache) {
  write_cache(0, 1, std::to_string(cores_[0]));
  write_cache(1, 3, all() + ",1000");  // and one more
  write_cache(2, 2, std::to_string(cores_[0]));
  write("node/node0/cpulist", "0-1023");
  EXPECT_EQ(find_domain(root_), domain(cores_.back() - cores_.front() + 2, cores_.front()));
}

TEST_F(FindDomain, IsThatOfTheMemoryWithoutALargeCache) {
  write_cache(0, 2, std::to_string(cores_[0]));
  write("node/possible", "0-1");
  write("node/node0/cpulist", "1020-1023");
  write("node/node1/cpulist", "0-1019");
  EXPECT_EQ(find_domain(root_), domain(1020, 0));
}

TEST_F(FindDomain, IsNoneWithoutFilesOrForCoresOfSeveral) {
  EXPECT_EQ(find_domain(root_), 0U);
  if (cores_.size() < 2) GTEST_SKIP() << "one core";
  write_cache(0, 3, std::to_string(cores_[0]));
  EXPECT_EQ(find_domain(root_), 0U);
  std::thread([&] {  // binds itself: the other threads' cores stay as they are
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores_[0], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(find_domain(root_), domain(1, cores_[0]));
  })
      .join();
}

TEST(DomainBorders, AreThoseOfConsecutiveMembers) {
  EXPECT_EQ(domain_borders(std::vector<std::uint32_t>{1, 1, 1, 1, 9, 9, 9, 9}), (Borders{0, 4, 8}));
  EXPECT_EQ(domain_borders(std::vector<std::uint32_t>{9, 9, 9, 1, 1, 1, 1, 1, 5, 5}), (Borders{0, 3, 8, 10}));
}

// With more ranks than cores, a second level only hands the cores around more often.
TEST(DomainBorders, AreNoneForMoreMembersThanCores) {
  for (const std::uint32_t cores : {3U, 4U}) {
    const std::uint32_t last = cores << domain_bits | 9;
    const std::uint32_t first = 4 << domain_bits | 1;
    EXPECT_EQ(domain_borders(std::vector{first, first, first, first, last, last, last, last}),
              cores == 4 ? (Borders{0, 4, 8}) : Borders{});
  }
}

TEST(DomainBorders, AreNoneForOneLevel) {
  for (const std::vector<std::uint32_t>& domains :
       std::vector<std::vector<std::uint32_t>>{{},
                                               {1, 1, 1, 2, 2, 2, 2},           // few
                                               {0, 0, 0, 0, 0, 0, 0, 0},        // in none
                                               {1, 1, 1, 1, 0, 0, 0, 0},        //
                                               {3, 3, 3, 3, 3, 3, 3, 3},        // one
                                               {1, 1, 1, 1, 2, 2, 2, 3},        // alone
                                               {3, 1, 1, 1, 1, 2, 2, 2},        //
                                               {1, 1, 2, 2, 1, 1, 2, 2},        // not consecutive
                                               {1, 2, 1, 2, 1, 2, 1, 2, 1}}) {  //
    EXPECT_EQ(domain_borders(domains), Borders{}) << domains.size() << ::testing::PrintToString(domains);
  }
}

// How many cache lines go from one domain to another in a barrier of ShmBarrier: each rank fetches that of every rank of the
// other domains, or each leader that of every other leader. The others look at lines of their own domain alone.
std::size_t lines_of_one_level(std::size_t domains, std::size_t each) {
  const std::size_t ranks = domains * each;
  return ranks * (ranks - each);
}
std::size_t lines_of_two_levels(const Borders& borders) {
  const std::size_t leaders = borders.size() - 1;
  return leaders * (leaders - 1);
}

TEST(DomainBorders, SaveMostLinesBetweenDomains) {
  struct Node {
    std::size_t domains, each, before, after;
  };
  for (const auto& [domains, each, before, after] : {Node{4, 4, 192, 12}, Node{8, 8, 3584, 56}, Node{16, 8, 15360, 240}}) {
    std::vector<std::uint32_t> of_members;
    for (std::size_t rank = 0; rank < domains * each; ++rank) {
      of_members.push_back(static_cast<std::uint32_t>(rank / each + 1));
    }
    EXPECT_EQ(lines_of_one_level(domains, each), before);
    EXPECT_EQ(lines_of_two_levels(domain_borders(of_members)), after);
  }
}

}  // namespace
}  // namespace tnt
