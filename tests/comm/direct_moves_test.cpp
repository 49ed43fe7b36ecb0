// Large blocks that move from process memory to process memory: where the system forbids that, they go through the slots.
#include "comm/shm/direct_moves.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::ThreadJob;

constexpr int ranks = 3;
constexpr std::size_t block = 4 * DirectMoves::min_bytes / sizeof(std::int64_t) + 1000;
using Values = std::vector<std::int64_t>;

// Every value tells the rank that it is from, the one that it is for, and its place.
Values block_between(int from, int to) {
  Values values(block);
  std::iota(values.begin(), values.end(), std::int64_t{1'000'000} * (from * ranks + to));
  return values;
}

Values joined(const std::function<Values(int member)>& part) {
  Values all;
  for (int member = 0; member < ranks; ++member) {
    const Values one = part(member);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void expect_all_kinds_move(Communicator& comm) {
  const int self = comm.rank();
  const Values own = block_between(self, self);
  const Values for_all = joined([&](int member) { return block_between(self, member); });
  const Values from_all = joined([&](int member) { return block_between(member, self); });
  const Values all_own = joined([](int member) { return block_between(member, member); });

  Values gathered(block * ranks);
  all_gather(comm, own.data(), gathered.data(), block, TNT_INT64, call());
  EXPECT_EQ(gathered, all_own);

  Values at_root(self == 1 ? block * ranks : 0);
  gather(comm, own.data(), at_root.data(), block, TNT_INT64, 1, call());
  EXPECT_EQ(at_root, self == 1 ? all_own : Values());

  Values part(block);
  scatter(comm, self == 2 ? for_all.data() : nullptr, part.data(), block, TNT_INT64, 2, call());
  EXPECT_EQ(part, block_between(2, self));

  Values same = own;
  broadcast(comm, same.data(), same.data(), block, TNT_INT64, 1, call());
  EXPECT_EQ(same, block_between(1, 1));

  Values exchanged(block * ranks);
  all_to_all(comm, for_all.data(), exchanged.data(), block, TNT_INT64, call());
  EXPECT_EQ(exchanged, from_all);

  Values in_place = for_all;
  all_to_all(comm, in_place.data(), in_place.data(), block, TNT_INT64, call());
  EXPECT_EQ(in_place, from_all);

  Values gathered_in_place(block * ranks);
  std::ranges::copy(own, gathered_in_place.begin() + static_cast<std::ptrdiff_t>(block) * self);
  all_gather(comm, gathered_in_place.data() + block * static_cast<std::size_t>(self), gathered_in_place.data(), block,
             TNT_INT64, call());
  EXPECT_EQ(gathered_in_place, all_own);
}

// From rank f to rank t: f + t blocks, thus none from rank 0 to itself.
void expect_uneven_blocks_move(Communicator& comm) {
  const auto self = static_cast<std::size_t>(comm.rank());
  Values sent;
  Values expected;
  std::array<std::size_t, ranks> sizes{};
  for (std::size_t member = 0; member < ranks; ++member) {
    sizes[member] = (self + member) * block;
    for (std::size_t i = 0; i < self + member; ++i) {
      const Values to = block_between(comm.rank(), static_cast<int>(member));
      const Values from = block_between(static_cast<int>(member), comm.rank());
      sent.insert(sent.end(), to.begin(), to.end());
      expected.insert(expected.end(), from.begin(), from.end());
    }
  }
  Values received(expected.size());
  all_to_all_v(comm, sent.data(), received.data(), sizes, sizes, TNT_INT64, call());
  EXPECT_EQ(received, expected);

  const std::array<std::size_t, ranks> counts{0, block, 2 * block};
  const Values own(counts[self], comm.rank());
  Values gathered(3 * block);
  all_gather_v(comm, own.data(), gathered.data(), counts, TNT_INT64, call());
  Values all(block, 1);
  all.resize(3 * block, 2);
  EXPECT_EQ(gathered, all);
}

// Of this thread, until it ends: process_vm_readv fails with EPERM, as in some containers.
void forbid_reads() {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

std::int64_t bytes_taken_by(const std::function<void(Communicator&)>& body) {
  const ThreadJob job(ranks);
  std::int64_t before = 0;
  std::int64_t after = 0;
  for (const auto& ending : job.run([&](Communicator& comm) {
         barrier(comm, call());
         if (comm.rank() == 0) before = job.bytes_taken();
         body(comm);
         barrier(comm, call());
         if (comm.rank() == 0) after = job.bytes_taken();
       })) {
    EXPECT_FALSE(ending) << ending->what();
  }
  return after - before;
}

TEST(DirectMoves, BlocksOfEveryKindArriveAndTakeNoSharedMemory) {
  const auto taken = bytes_taken_by([](Communicator& comm) {
    Values same = block_between(comm.rank(), 0);
    broadcast(comm, same.data(), same.data(), block, TNT_INT64, 1, call());
    EXPECT_EQ(same, block_between(1, 0));
  });
  EXPECT_LT(taken, std::int64_t{DirectMoves::min_bytes} * 2);
  bytes_taken_by([](Communicator& comm) {
    expect_all_kinds_move(comm);
    expect_uneven_blocks_move(comm);
  });
}

TEST(DirectMoves, ARankThatMayNotReadMakesAllUseSharedMemory) {
  const auto taken = bytes_taken_by([](Communicator& comm) {
    if (comm.rank() == 1) forbid_reads();
    for (int i = 0; i < 2; ++i) {
      expect_all_kinds_move(comm);
      expect_uneven_blocks_move(comm);
    }
  });
  EXPECT_GT(taken, std::int64_t{DirectMoves::min_bytes} * 4);
}

// Each kind tries both paths, and then takes the faster one.
TEST(DirectMoves, BlocksArriveByEitherPath) {
  bytes_taken_by([](Communicator& comm) {
    for (int i = 0; i < 12; ++i) {
      expect_all_kinds_move(comm);
      expect_uneven_blocks_move(comm);
    }
  });
}

TEST(DirectMoves, RanksInOtherCallsAreNamed) {
  const std::string message = testing::common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    Values in(2 * block);
    Values out(2 * block);
    if (comm.rank() == 0) return all_gather(comm, in.data(), out.data(), block, TNT_INT64, call());
    all_to_all(comm, in.data(), out.data(), block, TNT_INT64, call());
  });
  EXPECT_NE(message.find("all_gather"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
