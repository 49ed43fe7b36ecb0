// A deadline for MPI_Init: which ranks are named when not all come.
#include "bootstrap/join_watch.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

MpiPlace place_in(const std::string& job, int rank, int ranks, int local_ranks) {
  return {.job = job, .rank = rank, .ranks = ranks, .local_ranks = local_ranks};
}

class JoinWatchTest : public ::testing::Test {
 protected:
  // What a rank says that is still inside MPI_Init at the deadline.
  std::future<std::string> wait(int rank, int ranks, int local_ranks) {
    auto said = std::make_shared<std::promise<std::string>>();
    watches_.push_back(std::make_unique<JoinWatch>(place_in(job, rank, ranks, local_ranks), 0.2,
                                                   [said](const std::string& sentence) { said->set_value(sentence); }));
    return said->get_future();
  }

  // A rank that is stopped: its socket takes connections, and nobody answers.
  [[nodiscard]] FileDescriptor stopped(int rank) const {
    return listening(fmt::format("tarantella-join-{}-{}-{}", geteuid(), rank, job));
  }

  [[nodiscard]] static FileDescriptor listening(const std::string& name) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    std::memcpy(own.sun_path + 1, name.data(), name.size());
    FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), length), 0);
    EXPECT_EQ(listen(listener.get(), 16), 0);
    return listener;
  }

  const std::string job = "test" + std::to_string(std::random_device()());
  std::vector<std::unique_ptr<JoinWatch>> watches_;
};

TEST_F(JoinWatchTest, WhoHasNotComeIsNamed) {
  auto first = wait(0, 4, 4);
  auto third = wait(2, 4, 4);
  for (auto* rank : {&first, &third}) EXPECT_EQ(rank->get(), "rank 1, 3 did not join within 0.2 s: has not called MPI_Init");
}

TEST_F(JoinWatchTest, WhoIsStoppedInsideIsNamed) {
  const FileDescriptor rank = stopped(1);
  const std::string expected = "rank 1 did not join within 0.2 s: called MPI_Init, and does not answer, as if it were stopped";
  auto first = wait(0, 4, 2);
  auto second = wait(2, 4, 2);
  EXPECT_EQ(first.get(), expected);
  EXPECT_EQ(second.get(), expected);
}

TEST_F(JoinWatchTest, AnotherUsersProcessThatHasTheNameIsNoRank) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act for another user";
  // sockets of this thread alone are the other user's: not setresuid, which glibc does for all threads
  ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
  FileDescriptor foreign = listening(fmt::format("tarantella-join-0-1-{}", job));
  ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
  EXPECT_EQ(wait(0, 2, 2).get(), "rank 1 did not join within 0.2 s: has not called MPI_Init");
}

TEST_F(JoinWatchTest, OnSeveralHostsOnlyTheOwnRanksAreKnown) {
  auto first = wait(0, 4, 2);
  EXPECT_NE(first.get().find("did not join within 0.2 s: only rank 0 called MPI_Init"), std::string::npos);
  auto second = wait(1, 4, 2);
  EXPECT_NE(second.get().find(": rank 0, 1 of "), std::string::npos);
}

TEST_F(JoinWatchTest, WhoHasJoinedSaysNothingAndAnswers) {
  auto first = wait(0, 3, 3);
  watches_[0]->joined();
  EXPECT_EQ(wait(1, 3, 3).get(), "rank 2 did not join within 0.2 s: has not called MPI_Init");
  EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST(MpiPlaceTest, TheEnvironmentTells) {
  const std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "3"},
                                                     {"OMPI_COMM_WORLD_SIZE", "8"},
                                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                     {"PMIX_NAMESPACE", "7"}};
  const MpiPlace place = read_mpi_place([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.ranks, 8);
  EXPECT_EQ(place.local_ranks, 4);
  EXPECT_EQ(place.job, "7 ");
  EXPECT_EQ(read_mpi_place([](const char*) -> const char* { return nullptr; }).job, std::to_string(getppid()));
}

}  // namespace
}  // namespace tnt
