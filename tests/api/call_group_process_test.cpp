// Group calls between processes: any order on each rank, on all transports of host memory, and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace {

using namespace tnt::testing;

// per_node: consecutive ranks on each simulated node.
struct Layout {
  const char* name;
  int ranks;
  int per_node;
  const char* transport;
};

class CallGroupProcessTest : public ::testing::TestWithParam<Layout> {
 protected:
  static void run(const std::function<void(const Joined&)>& body) {
    const Layout layout = GetParam();
    ProcessOptions options{.environment = {{"TNT_TIMEOUT", "60"}}};
    if (layout.per_node < layout.ranks) options.environment["TNT_RENDEZVOUS"] = tcp_rendezvous();
    options.environment["TNT_TRANSPORT"] = layout.transport;
    run_processes(
        layout.ranks,
        [&](int rank) {
          if (layout.per_node < layout.ranks) setenv("TNT_INTERNAL_NODE", std::to_string(rank / layout.per_node).c_str(), 1);
          const Joined job;
          const char* transport = nullptr;
          check(tnt_comm_transport(job.world, &transport));
          EXPECT_STREQ(transport, layout.transport);
          body(job);
        },
        options);
  }
};

// Calls whose order matters are in one queue. Each rank takes the queues' heads in an order of its own.
using Queue = std::deque<std::function<tnt_status_t()>>;
void call_in_random_order(std::vector<Queue> queues, unsigned seed) {
  std::mt19937 random(seed);
  while (!queues.empty()) {
    std::swap(queues[random() % queues.size()], queues.back());
    check(queues.back().front()());
    queues.back().pop_front();
    if (queues.back().empty()) queues.pop_back();
  }
}

// More data than fits between two ranks, sends first.
TEST_P(CallGroupProcessTest, TheOrderIsEachRanksOwn) {
  run([](const Joined& job) {
    constexpr std::size_t count = 100'000;
    const auto n = static_cast<std::size_t>(job.size);
    const auto self = static_cast<std::size_t>(job.rank);
    const auto message = [](std::size_t from, std::size_t to) {
      return exact_values(TNT_FLOAT32, count, static_cast<unsigned>(from * 8 + to));
    };
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, 0, -job.rank, &part));
    for (unsigned round = 0; round < 3; ++round) {
      std::vector<Array> in;
      std::vector<Array> out;
      std::vector<std::int64_t> numbers(n, -1);
      const auto own = static_cast<std::int64_t>(self * 100 + round);
      std::vector<Queue> queues;
      for (std::size_t peer = 0; peer < n; ++peer) {
        in.push_back(message(self, peer));
        out.emplace_back(TNT_FLOAT32, count);
      }
      for (std::size_t peer = 0; peer < n; ++peer) {
        if (peer == self) continue;
        const int to = static_cast<int>(peer);
        queues.push_back(
            {[&, to, peer] { return tnt_send(job.world, in[peer].data(), count, TNT_FLOAT32, to, nullptr, nullptr); },
             [&, to] { return tnt_send(job.world, &own, 1, TNT_INT64, to, nullptr, nullptr); }});
        queues.push_back(
            {[&, to, peer] { return tnt_recv(job.world, out[peer].data(), count, TNT_FLOAT32, to, nullptr, nullptr); },
             [&, to, peer] { return tnt_recv(job.world, &numbers[peer], 1, TNT_INT64, to, nullptr, nullptr); }});
      }
      Array sum(TNT_FLOAT32, count);
      Array copied(TNT_FLOAT32, count);
      queues.push_back(
          {[&] { return all_reduce(job.world, in[0], sum, TNT_SUM); },
           [&] { return tnt_broadcast(job.world, in[1].data(), copied.data(), count, TNT_FLOAT32, 1, nullptr, nullptr); }});
      Array other_sum(TNT_FLOAT32, count);
      queues.push_back(
          {[&] { return tnt_barrier(part, nullptr, nullptr); }, [&] { return all_reduce(part, in[1], other_sum, TNT_MAX); }});
      check(tnt_group_start());
      call_in_random_order(std::move(queues), 10 * round + static_cast<unsigned>(job.rank));
      check(tnt_group_end());
      std::vector<Array> first;
      std::vector<Array> second;
      for (std::size_t peer = 0; peer < n; ++peer) {
        first.push_back(message(peer, 0));
        second.push_back(message(peer, 1));
        if (peer == self) continue;
        EXPECT_EQ(out[peer], message(peer, self)) << "from rank " << peer;
        EXPECT_EQ(numbers[peer], static_cast<std::int64_t>(peer * 100 + round));
      }
      EXPECT_EQ(sum, reduced(first, TNT_SUM));
      EXPECT_EQ(copied, message(1, 1));
      EXPECT_EQ(other_sum, reduced(second, TNT_MAX));
    }
    check(tnt_comm_destroy(part));
  });
}

// One rank has a group; for its peers the same calls stand alone.
TEST_P(CallGroupProcessTest, OthersMayCallOneByOne) {
  run([](const Joined& job) {
    int sum = 0;
    std::vector<int> received(static_cast<std::size_t>(job.size), -1);
    if (job.rank == 0) check(tnt_group_start());
    check(tnt_all_reduce(job.world, &job.rank, &sum, 1, TNT_INT32, TNT_SUM, nullptr, nullptr));
    for (int peer = 1; peer < job.size; ++peer) {
      if (job.rank != 0 && job.rank != peer) continue;
      const int other = job.rank == 0 ? peer : 0;
      check(tnt_send(job.world, &job.rank, 1, TNT_INT32, other, nullptr, nullptr));
      check(tnt_recv(job.world, &received[static_cast<std::size_t>(other)], 1, TNT_INT32, other, nullptr, nullptr));
    }
    if (job.rank == 0) check(tnt_group_end());
    EXPECT_EQ(sum, job.size * (job.size - 1) / 2);
    for (int peer = 0; peer < job.size; ++peer) {
      const bool expected = peer != job.rank && (job.rank == 0 || peer == 0);
      EXPECT_EQ(received[static_cast<std::size_t>(peer)], expected ? peer : -1);
    }
  });
}

const Layout layouts[] = {{"SharedMemory2", 2, 2, "shm"},      {"SharedMemory3", 3, 3, "shm"},
                          {"SharedMemory4", 4, 4, "shm"},      {"Network2", 2, 1, "tcp"},
                          {"Network3", 3, 1, "tcp"},           {"Network4", 4, 1, "tcp"},
                          {"TwoNodes4", 4, 2, "hierarchical"}, {"UnevenNodes3", 3, 2, "hierarchical"}};
INSTANTIATE_TEST_SUITE_P(Layouts, CallGroupProcessTest, ::testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CallGroupProcess, DifferentGroupsAreNamed) {
  run_processes(3, [](int rank) {
    const Joined job;
    double in = rank;
    double out = 0;
    check(tnt_group_start());
    if (rank == 1) {
      check(tnt_broadcast(job.world, &in, &out, 1, TNT_FLOAT64, 0, nullptr, nullptr));
    } else {
      check(tnt_all_reduce(job.world, &in, &out, 1, TNT_FLOAT64, TNT_SUM, nullptr, nullptr));
    }
    EXPECT_EQ(tnt_group_end(), TNT_MISMATCH) << tnt_last_error();
    for (const char* part : {"rank 1", "broadcast of 1 float64 from rank 0", "all_reduce sum of 1 float64"}) {
      EXPECT_NE(std::string(tnt_last_error()).find(part), std::string::npos) << tnt_last_error();
    }
  });
}

// What waits in other threads of the group ends, too.
TEST(CallGroupProcess, AMessageThatNobodySendsIsNamed) {
  run_processes(3,
                [](int rank) {
                  const Joined job;
                  int in = rank;
                  int received[2] = {-1, -1};
                  int sum = 0;
                  check(tnt_group_start());
                  check(tnt_all_reduce(job.world, &in, &sum, 1, TNT_INT32, TNT_SUM, nullptr, nullptr));
                  if (rank == 0) check(tnt_recv(job.world, &received[0], 1, TNT_INT32, 1, nullptr, nullptr));
                  if (rank == 0) check(tnt_recv(job.world, &received[1], 1, TNT_INT32, 2, nullptr, nullptr));
                  if (rank == 2) check(tnt_send(job.world, &in, 1, TNT_INT32, 0, nullptr, nullptr));
                  const tnt_status_t status = tnt_group_end();
                  EXPECT_EQ(sum, 3);
                  EXPECT_EQ(status, rank == 0 ? TNT_TIMEOUT : TNT_SUCCESS) << tnt_last_error();
                  EXPECT_EQ(received[1], rank == 0 ? 2 : -1);
                  wait_for([&] { return tnt_comm_check(job.world) == TNT_TIMEOUT; });
                  EXPECT_NE(std::string(tnt_last_error()).find("rank 0 in recv of 1 int32 from rank 1"), std::string::npos)
                      << tnt_last_error();
                },
                {.environment = {{"TNT_TIMEOUT", "0.5"}}});
}

// The first error in the order of the calls; operations of other communicators have their results.
TEST(CallGroupProcess, AnErrorOfOneCommunicatorIsReturned) {
  run_processes(2, [](int rank) {
    const Joined job;
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, 0, 0, &part));
    check(tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN));
    check(tnt_comm_abort(part, "enough"));
    check(tnt_barrier(job.world, nullptr, nullptr));
    int sums[3] = {};
    check(tnt_group_start());
    for (const std::size_t i : {0U, 1U, 2U}) {
      check(tnt_all_reduce(i == 1 ? part : job.world, &rank, &sums[i], 1, TNT_INT32, TNT_SUM, nullptr, nullptr));
    }
    EXPECT_EQ(tnt_group_end(), TNT_ABORTED);
    EXPECT_NE(std::string(tnt_last_error()).find(": enough"), std::string::npos) << tnt_last_error();
    EXPECT_EQ(sums[0], 1);
    EXPECT_EQ(sums[2], 1);
    check(tnt_comm_destroy(part));
  });
}

// Threads with groups of their own, on communicators of their own.
TEST(CallGroupProcess, EachThreadHasItsGroup) {
  run_processes(2, [](int rank) {
    const Joined job;
    std::vector<tnt_comm_t> comms(3);
    for (tnt_comm_t& comm : comms) check(tnt_comm_split(job.world, 0, 0, &comm));
    std::vector<std::thread> threads;
    for (const tnt_comm_t comm : comms) {
      threads.emplace_back([rank, comm] {
        for (int round = 0; round < 200; ++round) {
          const int in = round + rank;
          int sum = 0;
          int received = -1;
          check(tnt_group_start());
          check(tnt_send(comm, &in, 1, TNT_INT32, 1 - rank, nullptr, nullptr));
          check(tnt_all_reduce(comm, &in, &sum, 1, TNT_INT32, TNT_SUM, nullptr, nullptr));
          check(tnt_recv(comm, &received, 1, TNT_INT32, 1 - rank, nullptr, nullptr));
          check(tnt_group_end());
          EXPECT_EQ(sum, 2 * round + 1);
          EXPECT_EQ(received, round + 1 - rank);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
