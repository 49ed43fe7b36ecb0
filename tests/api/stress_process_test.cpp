// Random sequences of collectives and messages, in jobs whose ranks are stopped, continued and killed at random times: results
// are correct until a rank dies, and then every rank learns which one.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

struct Board {
  std::atomic<int> steps{0};  // finished by rank 0
  std::atomic<bool> stop{false};
};

std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count, unsigned seed) {
  std::vector<Array> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(exact_values(dtype, count, seed * 16 + static_cast<unsigned>(rank)));
  }
  return result;
}

// One random call, the same on all ranks of comm. Returns its status; a wrong result fails the test.
class Caller {
 public:
  Caller(tnt_comm_t comm, int rank, int size, unsigned seed)
      : comm_(comm), rank_(static_cast<std::size_t>(rank)), n_(static_cast<std::size_t>(size)), random_(seed) {}

  tnt_status_t step() {
    constexpr std::size_t counts[] = {1, 7, 100, 600, 2049, 5000, 70'000};
    count_ = counts[random_() % std::size(counts)];
    dtype_ = all_dtypes[random_() % std::size(all_dtypes)];
    op_ = all_ops[random_() % std::size(all_ops)];
    seed_ = static_cast<unsigned>(random_() % 1000);
    switch (random_() % 6) {
      case 0: return reduce_scatter();
      case 1: return all_gather();
      case 2: return all_to_all();
      case 3: return ring();
      default: return all_reduces(1 + random_() % 3);
    }
  }

 private:
  [[nodiscard]] std::vector<Array> all_inputs(std::size_t count) const {
    return inputs(static_cast<int>(n_), dtype_, count, seed_);
  }

  tnt_status_t all_reduces(std::size_t at_once) {
    const auto in = all_inputs(count_);
    const Array expected = reduced(in, op_);
    std::vector<Array> out(at_once, Array(dtype_, count_));
    std::vector<tnt_work_t> works(at_once, nullptr);
    tnt_status_t status = TNT_SUCCESS;
    for (std::size_t i = 0; i < at_once && status == TNT_SUCCESS; ++i) {
      status = all_reduce(comm_, in[rank_], out[i], op_, at_once == 1 ? nullptr : &works[i]);
    }
    for (std::size_t i = 0; i < at_once; ++i) {
      if (works[i] != nullptr) {
        const tnt_status_t waited = tnt_work_wait(works[i], -1);
        status = status == TNT_SUCCESS ? waited : status;
        EXPECT_EQ(tnt_work_destroy(works[i]), TNT_SUCCESS);
      }
      if (status == TNT_SUCCESS) {
        EXPECT_EQ(out[i], expected) << "all_reduce of " << count_;
      }
    }
    return status;
  }

  tnt_status_t reduce_scatter() {
    const auto in = all_inputs(count_ * n_);
    Array out(dtype_, count_);
    const tnt_status_t status = tnt_reduce_scatter(comm_, in[rank_].data(), out.data(), count_, dtype_, op_, nullptr, nullptr);
    if (status == TNT_SUCCESS) {
      EXPECT_EQ(out, reduced(in, op_).part(rank_ * count_, count_)) << "reduce_scatter of " << count_;
    }
    return status;
  }

  tnt_status_t all_gather() {
    const auto in = all_inputs(count_);
    Array out(dtype_, count_ * n_);
    const tnt_status_t status = tnt_all_gather(comm_, in[rank_].data(), out.data(), count_, dtype_, nullptr, nullptr);
    for (std::size_t i = 0; i < n_ && status == TNT_SUCCESS; ++i) EXPECT_EQ(out.part(i * count_, count_), in[i]);
    return status;
  }

  tnt_status_t all_to_all() {
    const auto in = all_inputs(count_ * n_);
    Array out(dtype_, count_ * n_);
    const tnt_status_t status = tnt_all_to_all(comm_, in[rank_].data(), out.data(), count_, dtype_, nullptr, nullptr);
    for (std::size_t i = 0; i < n_ && status == TNT_SUCCESS; ++i) {
      EXPECT_EQ(out.part(i * count_, count_), in[i].part(rank_ * count_, count_));
    }
    return status;
  }

  tnt_status_t ring() {
    const auto in = all_inputs(count_);
    Array out(dtype_, count_);
    const auto next = static_cast<int>((rank_ + 1) % n_);
    const std::size_t before = (rank_ + n_ - 1) % n_;
    tnt_work_t sent = nullptr;
    tnt_status_t status = tnt_send(comm_, in[rank_].data(), count_, dtype_, next, nullptr, &sent);
    if (status != TNT_SUCCESS) return status;
    status = tnt_recv(comm_, out.data(), count_, dtype_, static_cast<int>(before), nullptr, nullptr);
    const tnt_status_t waited = tnt_work_wait(sent, -1);
    EXPECT_EQ(tnt_work_destroy(sent), TNT_SUCCESS);
    if (status == TNT_SUCCESS) {
      EXPECT_EQ(out, in[before]) << "from rank " << before;
    }
    return status == TNT_SUCCESS ? waited : status;
  }

  tnt_comm_t comm_;
  std::size_t rank_;
  std::size_t n_;
  std::mt19937 random_;
  std::size_t count_ = 0;
  tnt_dtype_t dtype_ = TNT_FLOAT32;
  tnt_op_t op_ = TNT_SUM;
  unsigned seed_ = 0;
};

class StressTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(StressTest, RanksAreStoppedContinuedAndKilled) {
  std::mt19937 random(GetParam());
  const int ranks = 2 + static_cast<int>(random() % 5);
  const int victim = static_cast<int>(random()) % 2 == 0 ? -1 : static_cast<int>(random() % static_cast<unsigned>(ranks));
  Shared<Board> board;
  ProcessJob job(ranks, [&](int rank) {
    const Joined joined;
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(joined.world, 0, joined.size - rank, &part));  // in the opposite direction
    Caller on_world(joined.world, rank, joined.size, GetParam());
    Caller on_part(part, joined.size - 1 - rank, joined.size, GetParam() + 1);
    tnt_status_t status = TNT_SUCCESS;
    for (int stop = 0; stop == 0 && status == TNT_SUCCESS;) {
      status = on_world.step();
      if (status == TNT_SUCCESS) status = on_part.step();
      stop = board->stop ? 1 : 0;
      if (status == TNT_SUCCESS) status = tnt_broadcast(joined.world, &stop, &stop, 1, TNT_INT32, 0, nullptr, nullptr);
      if (rank == 0) ++board->steps;
    }
    EXPECT_EQ(status, victim < 0 ? TNT_SUCCESS : TNT_PEER_LOST) << tnt_last_error();
    if (victim >= 0) {
      const std::string named = "rank " + std::to_string(victim) + " (process ";
      EXPECT_EQ(std::string(tnt_last_error()).find(named), 0U) << tnt_last_error();
    }
    EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
  });
  for (int disturbance = 0; disturbance < 15; ++disturbance) {
    const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    job.send(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
    job.send(rank, SIGCONT);
  }
  wait_for([&] { return board->steps > 5; });
  if (victim >= 0) job.send(victim, SIGKILL);
  board->stop = victim < 0;
  const auto endings = job.wait();
  for (int rank = 0; rank < ranks; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_EQ(ending.signal, SIGKILL);
    } else {
      EXPECT_EQ(ending.code, 0) << "rank " << rank << ", signal " << ending.signal;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StressTest,
                         ::testing::ValuesIn(tnt::testing::some_of({1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}, {1U, 2U})));

}  // namespace
