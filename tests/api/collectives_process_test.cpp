// The collectives of the C API between processes: correct results, split, several threads, and no leftovers.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

class CollectivesProcessTest : public ::testing::TestWithParam<int> {};

std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(exact_values(dtype, count, static_cast<unsigned>(rank)));
  return result;
}

// Rank r has r * count elements. As works, whose lists of counts may end before they do.
void check_uneven(tnt_comm_t comm, std::size_t self, std::size_t n, tnt_dtype_t dtype, tnt_op_t op, std::size_t count) {
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < n; ++rank) counts.push_back(rank * count);
  const std::size_t total = n * (n - 1) / 2 * count;
  const std::size_t begin = self * (self - 1) / 2 * count * (self > 0 ? 1 : 0);
  const auto in = inputs(static_cast<int>(n), dtype, total);
  Array gathered(dtype, total);
  Array scattered(dtype, counts[self]);
  Array exchanged(dtype, n * counts[self]);  // each rank sends counts[r] elements to rank r
  std::vector<std::size_t> received(n, counts[self]);
  std::vector<std::size_t> passed = counts;
  const Array own = in[0].part(begin, counts[self]);
  std::array<tnt_work_t, 3> works{};
  check(tnt_all_gather_v(comm, own.data(), gathered.data(), passed.data(), dtype, nullptr, &works[0]));
  check(tnt_reduce_scatter_v(comm, in[self].data(), scattered.data(), passed.data(), dtype, op, nullptr, &works[1]));
  check(tnt_all_to_all_v(comm, in[self].data(), exchanged.data(), passed.data(), received.data(), dtype, nullptr, &works[2]));
  passed.assign(n, 12345);
  received.assign(n, 12345);
  for (const tnt_work_t work : works) {
    check(tnt_work_wait(work, -1));
    check(tnt_work_destroy(work));
  }
  EXPECT_EQ(gathered, in[0]) << "all_gather_v of " << count;
  EXPECT_EQ(scattered, reduced(in, op).part(begin, counts[self])) << "reduce_scatter_v of " << count;
  for (std::size_t rank = 0; rank < n; ++rank) {
    EXPECT_EQ(exchanged.part(rank * counts[self], counts[self]), in[rank].part(begin, counts[self]))
        << "all_to_all_v of " << count;
  }
}

void check_all(tnt_comm_t comm, int rank, int ranks, tnt_dtype_t dtype, tnt_op_t op, std::size_t count) {
  const auto n = static_cast<std::size_t>(ranks);
  const auto self = static_cast<std::size_t>(rank);
  const auto in = inputs(ranks, dtype, count);
  Array out(dtype, count);
  check(all_reduce(comm, in[self], out, op));
  EXPECT_EQ(out, reduced(in, op)) << "all_reduce of " << count;

  const auto whole = inputs(ranks, dtype, count * n);
  check(tnt_reduce_scatter(comm, whole[self].data(), out.data(), count, dtype, op, nullptr, nullptr));
  EXPECT_EQ(out, reduced(whole, op).part(self * count, count)) << "reduce_scatter of " << count;

  Array gathered(dtype, count * n);
  check(tnt_all_gather(comm, in[self].data(), gathered.data(), count, dtype, nullptr, nullptr));
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(gathered.part(i * count, count), in[i]) << "all_gather of " << count;

  Array in_place(dtype, count * n);
  in_place.place(self * count, in[self]);
  auto* const own_part = static_cast<std::byte*>(in_place.data()) + self * count * tnt_dtype_size(dtype);
  check(tnt_all_gather(comm, own_part, in_place.data(), count, dtype, nullptr, nullptr));
  EXPECT_EQ(in_place, gathered) << "all_gather in place of " << count;
  if (count > 0 && ranks > 1) {
    EXPECT_EQ(tnt_reduce_scatter(comm, in_place.data(), own_part, count, dtype, op, nullptr, nullptr), TNT_INVALID_ARGUMENT);
  }

  const int root = static_cast<int>(count) % ranks;
  const void* source = rank == root ? in[self].data() : nullptr;
  check(tnt_broadcast(comm, source, out.data(), count, dtype, root, nullptr, nullptr));
  EXPECT_EQ(out, in[static_cast<std::size_t>(root)]) << "broadcast of " << count;

  Array untouched(dtype, count * n);
  Array on_root = untouched;
  check(tnt_reduce(comm, in[self].data(), on_root.data(), count, dtype, op, root, nullptr, nullptr));
  EXPECT_EQ(on_root.part(0, count), rank == root ? reduced(in, op) : untouched.part(0, count)) << "reduce of " << count;
  check(tnt_gather(comm, in[self].data(), rank == root ? on_root.data() : nullptr, count, dtype, root, nullptr, nullptr));
  if (rank == root) {
    EXPECT_EQ(on_root, gathered) << "gather of " << count;
  }
  check(tnt_scatter(comm, rank == root ? gathered.data() : nullptr, out.data(), count, dtype, root, nullptr, nullptr));
  EXPECT_EQ(out, in[self]) << "scatter of " << count;
  check_uneven(comm, self, n, dtype, op, count);
  check(tnt_barrier(comm, nullptr, nullptr));
}

TEST_P(CollectivesProcessTest, AreRight) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    EXPECT_EQ(job.rank, rank);
    const char* transport = nullptr;
    check(tnt_comm_transport(job.world, &transport));
    EXPECT_STREQ(transport, "shm");
    for (const std::size_t count : {0U, 1U, 17U, 3000U, 70'000U}) {
      for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_INT8}) {
        for (const tnt_op_t op : {TNT_SUM, TNT_AVG, TNT_MAX}) {
          if (count < 70'000 || op == TNT_SUM) check_all(job.world, job.rank, job.size, dtype, op, count);
        }
      }
    }
  });
}

// One rank does not scale, and calls the plain form.
TEST_P(CollectivesProcessTest, AScaleIsTakenBeforeTheSum) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_BFLOAT16}) {
      for (const std::size_t count : {17U, 40'000U}) {
        const auto in = inputs(job.size, dtype, count);
        const Array expected = repeated(dtype, count, [&](std::size_t i) {
          double sum = 0;
          for (int each = 0; each < job.size; ++each) {
            sum += (each == 0 ? 1.0 : 0.25 * each) * in[static_cast<std::size_t>(each)].get(i);
          }
          return sum;
        });
        Array data = in[static_cast<std::size_t>(rank)];
        if (rank == 0) {
          check(all_reduce(job.world, data, data, TNT_SUM));
        } else {
          check(tnt_all_reduce_scaled(job.world, data.data(), data.data(), count, dtype, 0.25 * rank, nullptr, nullptr));
        }
        EXPECT_EQ(data, expected) << count;
      }
    }
  });
}

TEST_P(CollectivesProcessTest, AGroupIsItsMembersOwn) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    const int last = job.size - 1;
    const std::vector<int> ends = last == 0 ? std::vector<int>{0} : std::vector<int>{last, 0};
    if (rank == 0 || rank == last) {
      tnt_comm_t group = nullptr;
      check(tnt_comm_create_group(job.world, ends.data(), ends.size(), 1, &group));
      check_all(group, rank == last ? 0 : 1, static_cast<int>(ends.size()), TNT_FLOAT32, TNT_SUM, 5000);
      EXPECT_EQ(tnt_comm_destroy(group), TNT_SUCCESS);
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST_P(CollectivesProcessTest, PartsWorkBesideTheWorld) {
  run_processes(GetParam(), [](int rank) {
    const Joined job;
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, rank % 2, -rank, &part));
    int part_rank = -1;
    int part_size = 0;
    check(tnt_comm_rank(part, &part_rank));
    check(tnt_comm_size(part, &part_size));
    EXPECT_EQ(part_size, (job.size + 1 - rank % 2) / 2);
    EXPECT_EQ(part_rank, part_size - 1 - rank / 2);
    std::thread other([&] {
      for (int i = 0; i < 10; ++i) check_all(part, part_rank, part_size, TNT_FLOAT32, TNT_SUM, 5000);
    });
    for (int i = 0; i < 10; ++i) check_all(job.world, job.rank, job.size, TNT_INT32, TNT_MIN, 6000);
    other.join();
    EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
    check(tnt_comm_split(job.world, rank == 0 ? -1 : 0, 0, &part));
    EXPECT_EQ(part == nullptr, rank == 0);
    EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
  });
}

TEST_P(CollectivesProcessTest, TheJobMayBeJoinedAgain) {
  run_processes(GetParam(), [](int rank) {
    for (int i = 0; i < 3; ++i) {
      const Joined job;
      check_all(job.world, rank, job.size, TNT_FLOAT64, TNT_SUM, 10);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesProcessTest, ::testing::ValuesIn(tnt::testing::some_of({2, 3, 4, 8}, {2, 3})));

TEST(CollectivesProcess, OptionsStandInForTheEnvironment) {
  const std::string rendezvous = "tnt-test-options-" + std::to_string(std::random_device()());
  const ProcessOptions options{.environment = {{"TNT_RANK", ""}, {"TNT_SIZE", ""}, {"TNT_RENDEZVOUS", ""}, {"TNT_TOKEN", ""}}};
  run_processes(
      2,
      [&](int rank) {
        tnt_init_options_t place = TNT_INIT_OPTIONS_INITIALIZER;
        place.rank = rank;
        place.ranks = 2;
        place.rendezvous = rendezvous.c_str();
        place.token = "secret";
        check(tnt_init(&place));
        const Joined job;  // joined already
        check_all(job.world, rank, 2, TNT_UINT8, TNT_PROD, 100);
      },
      options);
}

TEST(CollectivesProcess, NothingIsLeftInTheFileSystem) {
  const auto named = [] {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      n += entry.path().string().find("tarantella") == std::string::npos ? 0 : 1;
    }
    return n;
  };
  run_processes(3, [&](int rank) {
    const Joined job;
    check_all(job.world, rank, 3, TNT_FLOAT32, TNT_SUM, 1000);
    EXPECT_EQ(named(), 0U);  // not even while it runs
  });
  EXPECT_EQ(named(), 0U);
}

}  // namespace
