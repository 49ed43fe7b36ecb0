// Messages between two ranks: any size, in order, both directions at once, independent of collectives; and how they fail.
#include "comm/shm/mailbox.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::common_error;
using testing::exact_values;
using testing::run_threads;

constexpr std::size_t packet = 64 * 1024;

void send(Communicator& comm, const Array& array, int to) {
  send(comm, array.data(), array.count(), array.dtype(), to, call());
}

Array recv(Communicator& comm, tnt_dtype_t dtype, std::size_t count, int from) {
  Array result(dtype, count);
  recv(comm, result.data(), count, dtype, from, call());
  return result;
}

TEST(Mailbox, BringsEverySize) {
  run_threads(2, [](Communicator& comm) {
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      const std::size_t one = packet / dtype_size(dtype);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, one - 1, one, one + 1, 2 * one, 5 * one + 3}) {
        const Array message = exact_values(dtype, count, static_cast<unsigned>(count));
        if (comm.rank() == 0) send(comm, message, 1);
        if (comm.rank() == 1) {
          EXPECT_EQ(recv(comm, dtype, count, 0), message) << count << " " << dtype_name(dtype);
        }
      }
    }
  });
}

// All pairs, each rank in its own random order, with collectives in between: one thread for each peer and direction.
TEST(Mailbox, AllPairsAtOnceBesideCollectives) {
  for (const int ranks : {2, 3, 8}) {
    run_threads(ranks, [&](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.rank()));
      std::vector<int> sizes;
      for (int i = 0; i < 20; ++i) sizes.push_back(1 + i * i * 200);
      std::vector<std::thread> threads;
      std::vector<int> peers;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != comm.rank()) peers.push_back(peer);
      }
      std::shuffle(peers.begin(), peers.end(), random);
      const auto message = [](int from, int to, int size) {
        return exact_values(TNT_INT32, static_cast<std::size_t>(size), static_cast<unsigned>(from * 8 + to + size));
      };
      for (const int peer : peers) {
        threads.emplace_back([&, peer] {
          for (const int size : sizes) send(comm, message(comm.rank(), peer, size), peer);
        });
        threads.emplace_back([&, peer] {
          for (const int size : sizes) {
            EXPECT_EQ(recv(comm, TNT_INT32, static_cast<std::size_t>(size), peer), message(peer, comm.rank(), size));
          }
        });
      }
      for (int i = 0; i < 50; ++i) barrier(comm, call());
      for (std::thread& thread : threads) thread.join();
    });
  }
}

TEST(Mailbox, CommunicatorsAreApart) {
  run_threads(2, [](Communicator& comm) {
    const auto part = comm.split(0, -comm.rank(), call());  // ranks reversed: rank 1 is rank 0 there
    const Array first = exact_values(TNT_FLOAT32, 10, 1);
    const Array second = exact_values(TNT_FLOAT32, 10, 2);
    if (comm.rank() == 0) {
      send(comm, first, 1);
      send(*part, second, 0);
    } else {
      EXPECT_EQ(recv(*part, TNT_FLOAT32, 10, 1), second);
      EXPECT_EQ(recv(comm, TNT_FLOAT32, 10, 0), first);
    }
  });
}

TEST(Mailbox, AnotherCountOrTypeIsNamed) {
  std::string message = common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    if (comm.rank() == 0) send(comm, Array(TNT_FLOAT32, 12), 1);
    if (comm.rank() == 1) (void)recv(comm, TNT_FLOAT32, 10, 0);
    barrier(comm, call());
  });
  EXPECT_EQ(message,
            "rank 1 called recv of 10 float32 from rank 0 while rank 0 called send of 12 float32 to rank 1: their "
            "types and counts must be equal");
  message = common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    if (comm.rank() == 1) send(comm, Array(TNT_INT8, 4), 0);
    if (comm.rank() == 0) (void)recv(comm, TNT_UINT8, 4, 1);
    barrier(comm, call());
  });
  EXPECT_EQ(message.find("rank 0 called recv of 4 uint8 from rank 1 while rank 1 called send of 4 int8 to rank 0"), 0U)
      << message;
}

TEST(Mailbox, WhoDoesNotComeIsNamed) {
  std::string message = common_error(3, TNT_TIMEOUT, [](Communicator& comm) {
    Array array(TNT_FLOAT32, 5);
    if (comm.rank() == 0) recv(comm, array.data(), 5, TNT_FLOAT32, 2, call(0.2));
    barrier(comm, call());
  });
  EXPECT_EQ(message.find("rank 2 did not arrive within 0.2 s while rank 0 in recv of 5 float32 from rank 2 waited"), 0U)
      << message;
  message = common_error(2, TNT_TIMEOUT, [](Communicator& comm) {  // the ring is full and nobody receives
    if (comm.rank() == 0) send(comm, Array(TNT_UINT8, 3 * packet).data(), 3 * packet, TNT_UINT8, 1, call(0.2));
    barrier(comm, call());
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.2 s"), 0U) << message;
}

TEST(Mailbox, CancelEndsAWait) {
  run_threads(2, [](Communicator& comm) {
    const auto part = comm.split(0, 0, call());
    if (comm.rank() == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        part->cancel();
      });
      EXPECT_THROW((void)recv(*part, TNT_INT8, 1, 1), Error);
      other.join();
    }
    barrier(comm, call());
  });
}

}  // namespace
}  // namespace tnt
