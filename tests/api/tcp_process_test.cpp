// Jobs on several nodes that are started without MPI: ranks that find each other by tcp://host:port. The nodes are simulated:
// every rank believes that others are elsewhere.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace {

using namespace tnt::testing;

// per_node: consecutive ranks on each node.
ProcessOptions by_tcp(const char* transport, const char* timeout = "30") {
  return {.environment = {{"TNT_RENDEZVOUS", tcp_rendezvous()}, {"TNT_TRANSPORT", transport}, {"TNT_TIMEOUT", timeout}}};
}
void be_on_node(int node) { setenv("TNT_INTERNAL_NODE", std::to_string(node).c_str(), 1); }

std::string transport_of(tnt_comm_t comm) {
  const char* name = nullptr;
  check(tnt_comm_transport(comm, &name));
  return name;
}

struct Layout {
  const char* name;
  int ranks;
  int per_node;
  const char* wanted;
  const char* transport;  // that they get
};
class TcpJobTest : public ::testing::TestWithParam<Layout> {};

TEST_P(TcpJobTest, CollectivesAreRight) {
  const Layout& layout = GetParam();
  run_processes(
      layout.ranks,
      [&](int rank) {
        be_on_node(rank / layout.per_node);
        const Joined job;
        EXPECT_EQ(transport_of(job.world), layout.transport);
        for (const std::size_t count : {std::size_t{1}, std::size_t{3000}, std::size_t{200'003}}) {
          std::vector<Array> in;
          for (int other = 0; other < job.size; ++other) {
            in.push_back(exact_values(TNT_FLOAT32, count, static_cast<unsigned>(other)));
          }
          Array out(TNT_FLOAT32, count);
          check(all_reduce(job.world, in[static_cast<std::size_t>(rank)], out, TNT_SUM));
          EXPECT_EQ(out, reduced(in, TNT_SUM));
        }
        const int next = (rank + 1) % job.size;
        const int before = (rank + job.size - 1) % job.size;
        std::vector<int> sent(100'000, rank);
        std::vector<int> came(sent.size());
        tnt_work_t work = nullptr;
        check(tnt_send(job.world, sent.data(), sent.size(), TNT_INT32, next, nullptr, &work));
        check(tnt_recv(job.world, came.data(), came.size(), TNT_INT32, before, nullptr, nullptr));
        check(tnt_work_wait(work, -1));
        check(tnt_work_destroy(work));
        EXPECT_EQ(came, std::vector<int>(sent.size(), before));
        tnt_comm_t half = nullptr;
        check(tnt_comm_split(job.world, rank % 2, 0, &half));
        check(tnt_barrier(half, nullptr, nullptr));
        check(tnt_comm_destroy(half));
        check(tnt_barrier(job.world, nullptr, nullptr));
      },
      by_tcp(layout.wanted));
}

const Layout layouts[] = {{"TwoNodes", 2, 1, "auto", "tcp"},
                          {"FiveRanksOneByOne", 5, 1, "tcp", "tcp"},
                          {"TwoNodesOfTwo", 4, 2, "auto", "hierarchical"},
                          {"RankToRankInsideNodes", 4, 2, "tcp", "tcp"},
                          {"OneNode", 3, 3, "auto", "shm"}};
INSTANTIATE_TEST_SUITE_P(Layouts, TcpJobTest, ::testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TcpJob, ARankThatDiesIsNamed) {
  ProcessJob job(
      3,
      [](int rank) {
        be_on_node(rank);
        tnt_comm_t world = nullptr;
        check(tnt_init(nullptr));
        check(tnt_comm_world(&world));
        check(tnt_barrier(world, nullptr, nullptr));
        if (rank == 1) raise(SIGKILL);
        EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_PEER_LOST);
        EXPECT_NE(std::string(tnt_last_error()).find("rank 1 was lost (it or its host has died)"), std::string::npos)
            << tnt_last_error();
        EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
      },
      by_tcp("auto"));
  const auto endings = job.wait();
  EXPECT_EQ(endings[0].code, 0);
  EXPECT_EQ(endings[1].signal, SIGKILL);
  EXPECT_EQ(endings[2].code, 0);
}

TEST(TcpJob, ARankThatLeavesIsNamed) {
  run_processes(
      2,
      [](int rank) {
        be_on_node(rank);
        const Joined job;
        if (rank == 1) return;
        EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_PEER_LOST);
        EXPECT_NE(std::string(tnt_last_error()).find("rank 1 left the job"), std::string::npos) << tnt_last_error();
      },
      by_tcp("auto"));
}

TEST(TcpJob, AnErrorOfANodeStaysThere) {
  run_processes(
      3,
      [](int rank) {
        be_on_node(rank / 2);
        const Joined job;
        tnt_comm_t node = nullptr;
        check(tnt_comm_split(job.world, rank / 2, 0, &node));
        check(tnt_comm_set_error_mode(node, TNT_ERRORS_RETURN));
        check(tnt_comm_abort(node, "enough"));
        EXPECT_EQ(tnt_barrier(node, nullptr, nullptr), TNT_ABORTED);
        check(tnt_barrier(job.world, nullptr, nullptr));
      },
      by_tcp("hierarchical"));
}

TEST(TcpJob, AForkKeepsNoConnectionOpen) {
  run_processes(
      2,
      [](int rank) {
        be_on_node(rank);
        check(tnt_init(nullptr));
        tnt_comm_t world = nullptr;
        check(tnt_comm_world(&world));
        if (rank == 1) {
          if (fork() == 0) sleep(3), _exit(0);
          _exit(0);  // without a word to rank 0
        }
        EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_PEER_LOST);
        EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
      },
      by_tcp("auto", "2"));
}

TEST(TcpJob, AMissingRankIsNamed) {
  run_processes(
      3,
      [](int rank) {
        if (rank == 1) _exit(0);
        EXPECT_EQ(tnt_init(nullptr), TNT_TIMEOUT);
        EXPECT_STREQ(tnt_last_error(), "rank 1 did not join within 1 s");
      },
      by_tcp("auto", "1"));
}

// Rank 2 waits for it, too, and is not to blame.
TEST(TcpJob, ARankThatIsStoppedWhileTheOthersConnectIsNamedAlone) {
  Shared<std::atomic<pid_t>> waiting;
  ProcessJob job(
      3,
      [&](int rank) {
        if (rank == 1) *waiting = getpid();
        if (rank == 2) {
          wait_for([&] { return *waiting != 0; });
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 1 has come to rank 0
          kill(*waiting, SIGSTOP);
        }
        EXPECT_EQ(tnt_init(nullptr), TNT_TIMEOUT);
        const std::string message = tnt_last_error();
        if (rank == 0) {
          EXPECT_EQ(message, "rank 1 did not join within 1 s");
        }
        if (rank == 2) {
          EXPECT_EQ(message.find("rank 1 did not report"), 0U) << message;
          kill(*waiting, SIGKILL);
        }
      },
      by_tcp("auto", "1"));
  const auto endings = job.wait();
  EXPECT_EQ(endings[0].code, 0);
  EXPECT_EQ(endings[1].signal, SIGKILL);
  EXPECT_EQ(endings[2].code, 0);
}

TEST(TcpJob, WithoutRankZeroItsAddressIsNamed) {
  const ProcessOptions options = by_tcp("auto", "1");
  const std::string address = options.environment.at("TNT_RENDEZVOUS").substr(6);
  run_processes(
      2,
      [&](int rank) {
        if (rank == 0) return;
        EXPECT_EQ(tnt_init(nullptr), TNT_TIMEOUT);
        EXPECT_EQ(tnt_last_error(), "rank 0 did not join within 1 s: nothing answers at " + address);
      },
      options);
}

TEST(TcpJob, AnotherTokenIsSentAway) {
  run_processes(
      2,
      [](int rank) {
        if (rank == 1) setenv("TNT_TOKEN", "guess", 1);
        EXPECT_EQ(tnt_init(nullptr), rank == 0 ? TNT_TIMEOUT : TNT_MISMATCH);
        EXPECT_NE(std::string(tnt_last_error()).find("another token"), std::string::npos) << tnt_last_error();
      },
      by_tcp("auto", "1"));
}

TEST(TcpJob, AnotherNumberOfRanksIsAMismatch) {
  run_processes(
      3,
      [](int rank) {
        if (rank == 2) setenv("TNT_SIZE", "4", 1);
        EXPECT_EQ(tnt_init(nullptr), TNT_MISMATCH);
        EXPECT_STREQ(tnt_last_error(), "rank 2 was started for 4 ranks, rank 0 for 3");
      },
      by_tcp("auto"));
}

TEST(TcpJob, TheTransportOfMpiIsRefused) {
  run_processes(
      2,
      [](int rank) {
        be_on_node(rank);
        EXPECT_EQ(tnt_init(nullptr), TNT_INVALID_ARGUMENT);
        EXPECT_STREQ(tnt_last_error(),
                     "TNT_TRANSPORT=mpi: the ranks of this job are connected by TCP; use auto, tcp, hierarchical or shm");
      },
      by_tcp("mpi"));
}

}  // namespace
