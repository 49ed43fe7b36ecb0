// Asynchronous operations between processes: order, short waits, tests, handles released early, several communicators.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

class WorkProcessTest : public ::testing::TestWithParam<int> {};

TEST_P(WorkProcessTest, ManyOutstandingRunInOrder) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    constexpr int n = 40;
    std::vector<Array> in;
    std::vector<Array> out;
    for (int i = 0; i < n; ++i) {
      in.push_back(exact_values(TNT_FLOAT32, static_cast<std::size_t>(i) * 100, static_cast<unsigned>(rank + 8 * i)));
      out.emplace_back(TNT_FLOAT32, in.back().count());
    }
    std::vector<tnt_work_t> works(n);
    for (std::size_t i = 0; i < n; ++i) check(all_reduce(job.world, in[i], out[i], TNT_SUM, &works[i]));
    check(tnt_barrier(job.world, nullptr, nullptr));  // after all of them
    for (std::size_t i = 0; i < n; ++i) {
      int finished = 0;
      EXPECT_EQ(tnt_work_test(works[i], &finished), TNT_SUCCESS);
      EXPECT_EQ(finished, 1) << i;
      std::vector<Array> all;
      for (int other = 0; other < job.size; ++other) {
        all.push_back(exact_values(TNT_FLOAT32, i * 100, static_cast<unsigned>(other) + 8 * static_cast<unsigned>(i)));
      }
      EXPECT_EQ(out[i], reduced(all, TNT_SUM));
      EXPECT_EQ(tnt_work_destroy(works[i]), TNT_SUCCESS);
    }
  });
}

TEST_P(WorkProcessTest, AShortWaitLeavesTheOperationRunning) {
  Shared<std::atomic<bool>> go;
  run_processes(GetParam(), [&](int rank) {
    const Joined job;
    tnt_work_t work = nullptr;
    if (rank == 0) {
      check(tnt_barrier(job.world, nullptr, &work));
      EXPECT_EQ(tnt_work_wait(work, 0.02), TNT_TIMEOUT);
      EXPECT_STREQ(tnt_last_error(), "the operation has not finished within 0.02 s");
      int finished = 1;
      EXPECT_EQ(tnt_work_test(work, &finished), TNT_SUCCESS);
      EXPECT_EQ(finished, 0);
      *go = true;
    } else {
      wait_for([&] { return go->load(); });
      check(tnt_barrier(job.world, nullptr, &work));
    }
    EXPECT_EQ(tnt_work_wait(work, -1), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
  });
}

// Messages from the other ranks, which are told one by one to send theirs, in descending order.
TEST_P(WorkProcessTest, TheOneThatHasFinishedIsFound) {
  Shared<std::atomic<int>> next;
  *next = 0;
  run_processes(GetParam(), [&](int rank) {
    const Joined job;
    if (rank > 0) {
      wait_for([&] { return *next == rank; });
      check(tnt_send(job.world, &rank, 1, TNT_INT32, 0, nullptr, nullptr));
      return check(tnt_barrier(job.world, nullptr, nullptr));
    }
    std::vector<int> received(static_cast<std::size_t>(job.size), -1);
    std::vector<tnt_work_t> works(received.size(), nullptr);
    for (std::size_t from = 1; from < works.size(); ++from) {
      check(tnt_recv(job.world, &received[from], 1, TNT_INT32, static_cast<int>(from), nullptr, &works[from]));
    }
    std::size_t index = 0;
    EXPECT_EQ(tnt_work_wait_any(works.data(), works.size(), 0.05, &index), TNT_TIMEOUT);
    EXPECT_EQ(index, works.size());
    for (std::size_t expected = works.size() - 1; expected > 0; --expected) {
      *next = static_cast<int>(expected);
      check(tnt_work_wait_any(works.data(), works.size(), -1, &index));
      EXPECT_EQ(index, expected);
      EXPECT_EQ(received[index], static_cast<int>(expected));
      check(tnt_work_destroy(works[index]));
      works[index] = nullptr;
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST_P(WorkProcessTest, AHandleGivenBackEarlyStopsNothing) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    const Array in = exact_values(TNT_INT64, 200'000, static_cast<unsigned>(rank));
    Array out(TNT_INT64, in.count());
    tnt_work_t work = nullptr;
    check(all_reduce(job.world, in, out, TNT_MAX, &work));
    EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
    check(tnt_barrier(job.world, nullptr, nullptr));
    std::vector<Array> all;
    for (int other = 0; other < job.size; ++other)
      all.push_back(exact_values(TNT_INT64, in.count(), static_cast<unsigned>(other)));
    EXPECT_EQ(out, reduced(all, TNT_MAX));
  });
}

TEST_P(WorkProcessTest, CommunicatorsDoNotWaitForEachOther) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, 0, 0, &part));
    tnt_work_t on_world = nullptr;
    tnt_work_t on_part = nullptr;
    // the ranks start them in different orders: each communicator has its own thread
    for (const bool world_first : {rank % 2 == 0, rank % 2 != 0}) {
      check(tnt_barrier(world_first ? job.world : part, nullptr, world_first ? &on_world : &on_part));
    }
    EXPECT_EQ(tnt_work_wait(on_world, -1), TNT_SUCCESS);
    EXPECT_EQ(tnt_work_wait(on_part, -1), TNT_SUCCESS);
    EXPECT_EQ(tnt_work_destroy(on_world), TNT_SUCCESS);
    EXPECT_EQ(tnt_work_destroy(on_part), TNT_SUCCESS);
    EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
  });
}

// More data than fits between two ranks, to and from all ranks, sends first: this only completes if the operations run
// concurrently.
TEST_P(WorkProcessTest, EverybodySendsToEverybody) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    constexpr std::size_t count = 100'000;
    const auto message = [](int from, int to) {
      return exact_values(TNT_FLOAT32, count, static_cast<unsigned>(from * 8 + to));
    };
    std::vector<Array> in;
    std::vector<Array> out;
    std::vector<tnt_work_t> works;
    for (int peer = 0; peer < job.size; ++peer) {
      in.push_back(message(rank, peer));
      out.emplace_back(TNT_FLOAT32, count);
    }
    for (int peer = 0; peer < job.size; ++peer) {
      if (peer == rank) continue;
      const auto i = static_cast<std::size_t>(peer);
      check(tnt_send(job.world, in[i].data(), count, TNT_FLOAT32, peer, nullptr, &works.emplace_back()));
      check(tnt_recv(job.world, out[i].data(), count, TNT_FLOAT32, peer, nullptr, &works.emplace_back()));
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
    for (tnt_work_t work : works) {
      EXPECT_EQ(tnt_work_wait(work, -1), TNT_SUCCESS) << tnt_last_error();
      EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
    }
    for (int peer = 0; peer < job.size; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(out[static_cast<std::size_t>(peer)], message(peer, rank)) << "from rank " << peer;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorkProcessTest, ::testing::ValuesIn(tnt::testing::some_of({2, 3, 4, 8}, {2, 3})));

TEST(WorkProcess, EveryOutstandingOperationLearnsOfADeath) {
  Shared<std::atomic<int>> waiting;
  ProcessJob job(3, [&](int rank) {
    const Joined joined;
    if (rank == 2) {
      wait_for([&] { return waiting->load() == 2; });
      raise(SIGKILL);
    }
    std::vector<tnt_work_t> works(5);
    for (tnt_work_t& work : works) check(tnt_barrier(joined.world, nullptr, &work));
    ++*waiting;
    for (tnt_work_t work : works) {
      EXPECT_EQ(tnt_work_wait(work, -1), TNT_PEER_LOST);
      EXPECT_NE(std::string(tnt_last_error()).find("rank 2 (process "), std::string::npos) << tnt_last_error();
      EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
    }
  });
  const auto endings = job.wait();
  EXPECT_EQ(endings[0].code, 0);
  EXPECT_EQ(endings[1].code, 0);
  EXPECT_EQ(endings[2].signal, SIGKILL);
}

}  // namespace
