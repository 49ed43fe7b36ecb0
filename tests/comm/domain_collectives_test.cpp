// Ranks in domains: every collective has the bits that it has with one level, and errors say the same.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::disorderly_values;

using Domains = std::vector<std::uint32_t>;  // of each rank
using Results = std::vector<std::vector<Array>>;

const Domains halves{1, 1, 1, 1, 2, 2, 2, 2};
const Domains pairs{1, 1, 2, 2, 3, 3, 4, 4};

testing::Endings run_in(const Domains& domains, const testing::Body& body) {
  return testing::ThreadJob(static_cast<int>(domains.size()), testing::make_transport_in(domains)).run(body);
}

// Sums and the like by LL, one-shot and halves-shot; and calls whose blocks go through the slots or are read directly.
std::vector<Array> every_collective(Communicator& comm) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  std::vector<Array> results;
  const auto result = [&](tnt_dtype_t dtype, std::size_t count) -> void* { return results.emplace_back(dtype, count).data(); };
  for (const tnt_dtype_t dtype : testing::all_dtypes) {
    std::vector<tnt_op_t> ops(std::begin(testing::all_ops), std::end(testing::all_ops));
    if (std::ranges::count(testing::integers, dtype) > 0) {
      ops.insert(ops.end(), std::begin(testing::integer_ops), std::end(testing::integer_ops));
    }
    for (const std::size_t count : {std::size_t{11}, std::size_t{1'000}, std::size_t{20'001}}) {
      const Array in = disorderly_values(dtype, count, static_cast<unsigned>(self));
      for (const tnt_op_t op : ops) all_reduce(comm, in.data(), result(dtype, count), count, dtype, op, call());
    }
  }
  std::vector<std::size_t> counts(n);
  std::iota(counts.begin(), counts.end(), std::size_t{7});
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  for (const std::size_t count : {std::size_t{100}, std::size_t{70'001}}) {
    const tnt_dtype_t dtype = TNT_FLOAT32;
    const Array in = disorderly_values(dtype, count * n, static_cast<unsigned>(self + 50));
    const int root = static_cast<int>(count % n);
    reduce(comm, in.data(), result(dtype, count), count, dtype, TNT_SUM, root, call());
    reduce_scatter(comm, in.data(), result(dtype, count), count, dtype, TNT_SUM, call());
    reduce_scatter_v(comm, in.data(), result(dtype, counts[self]), counts, dtype, TNT_SUM, call());
    all_gather(comm, in.data(), result(dtype, count * n), count, dtype, call());
    all_gather_v(comm, in.data(), result(dtype, total), counts, dtype, call());
    broadcast(comm, in.data(), result(dtype, count), count, dtype, root, call());
    gather(comm, in.data(), result(dtype, count * n), count, dtype, root, call());
    scatter(comm, in.data(), result(dtype, count), count, dtype, root, call());
    all_to_all(comm, in.data(), result(dtype, count * n), count, dtype, call());
    const std::vector<std::size_t> taken(n, counts[self]);
    all_to_all_v(comm, in.data(), result(dtype, n * counts[self]), counts, taken, dtype, call());
  }
  return results;
}

Results results_in(const Domains& domains) {
  Results results(domains.size());
  const auto endings =
      run_in(domains, [&](Communicator& comm) { results[static_cast<std::size_t>(comm.rank())] = every_collective(comm); });
  for (const auto& ending : endings) EXPECT_FALSE(ending) << ending->what();
  return results;
}

TEST(DomainCollectives, HaveTheBitsOfOneLevel) {
  for (const auto& layouts : {std::vector<Domains>{halves, pairs}, std::vector<Domains>{{1, 1, 1, 2, 2, 3, 3, 3, 3}}}) {
    const Results expected = results_in(Domains(layouts.front().size()));
    for (const Domains& domains : layouts) {
      const Results found = results_in(domains);
      for (std::size_t rank = 0; rank < domains.size(); ++rank) {
        EXPECT_TRUE(found[rank] == expected[rank]) << "rank " << rank << " of " << domains.size();
      }
    }
  }
}

// What every rank says; the calls before have found the domains.
std::string error_of_all(const Domains& domains, tnt_status_t status, const testing::Body& body) {
  const auto endings = run_in(domains, [&](Communicator& comm) {
    for (int i = 0; i < 2; ++i) barrier(comm, call());
    body(comm);
  });
  for (const auto& ending : endings) {
    if (!ending) {
      ADD_FAILURE() << "a rank saw no error";
      return "";
    }
    EXPECT_EQ(ending->status(), status);
    EXPECT_STREQ(ending->what(), endings[0]->what());
  }
  return endings[0]->what();
}

// Leaders and members.
TEST(DomainCollectives, AnotherCallIsNamed) {
  struct Odd {
    std::function<void(Communicator&)> call;
    const char* text;
  };
  std::vector<float> zeros(8 * 5000);  // values do not matter
  const auto sum = [&](Communicator& comm, std::size_t count) {
    float* own = zeros.data() + static_cast<std::size_t>(comm.rank()) * 5000;
    all_reduce(comm, own, own, count, TNT_FLOAT32, TNT_SUM, call());
  };
  const std::vector<Odd> odd_calls{{[](Communicator& comm) { barrier(comm, call()); }, "barrier"},
                                   {[&](Communicator& comm) { sum(comm, 5000); }, "all_reduce sum of 5000 float32"},
                                   {[&](Communicator& comm) { sum(comm, 1); }, "all_reduce sum of 1 float32"}};
  for (const Domains& domains : {halves, pairs}) {
    for (const int odd : {0, 3, 4, 7}) {
      for (const Odd& other : odd_calls) {
        const std::string message = error_of_all(domains, TNT_MISMATCH, [&](Communicator& comm) {
          comm.rank() == odd ? other.call(comm) : sum(comm, 4000);
          barrier(comm, call());
        });
        EXPECT_NE(message.find(fmt::format("rank {} called {}", odd, other.text)), std::string::npos) << message;
        EXPECT_NE(message.find("called all_reduce sum of 4000 float32"), std::string::npos) << message;
        EXPECT_NE(message.find("(call 3 of their communicator)"), std::string::npos) << message;
      }
    }
  }
}

TEST(DomainCollectives, ATimeoutNamesAllWhoAreMissing) {
  const std::string message = error_of_all(halves, TNT_TIMEOUT, [](Communicator& comm) {
    if (comm.rank() == 3 || comm.rank() == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    barrier(comm, call(0.3));
  });
  EXPECT_EQ(message.find("rank 3, rank 4 did not arrive within 0.3 s"), 0U) << message;
}

TEST(DomainCollectives, WhoLeavesIsNamed) {
  for (const int leaving : {0, 4, 6}) {
    const auto endings = run_in(halves, [&](Communicator& comm) {
      for (int i = 0; i < 2; ++i) barrier(comm, call());
      if (comm.rank() != leaving) barrier(comm, call());
    });
    for (int rank = 0; rank < 8; ++rank) {
      const auto& ending = endings[static_cast<std::size_t>(rank)];
      ASSERT_EQ(ending.has_value(), rank != leaving);
      if (!ending) continue;
      EXPECT_EQ(ending->status(), TNT_PEER_LOST);
      EXPECT_EQ(std::string(ending->what()).find(fmt::format("rank {} left the job", leaving)), 0U) << ending->what();
    }
  }
}

}  // namespace
}  // namespace tnt
