#include "support/thread_ranks.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tnt::testing {

ThreadJob::ThreadJob(int ranks) : ranks_(ranks), transport_(make_transport(ranks)) {}

Endings ThreadJob::run(const Body& body) const {
  Endings endings(static_cast<std::size_t>(ranks_));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto comm = transport_->join(rank);
        body(*comm);
      } catch (const Error& error) {
        endings[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return endings;
}

void run_threads(int ranks, const Body& body) {
  const Endings endings = ThreadJob(ranks).run(body);
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    if (endings[rank]) ADD_FAILURE() << "rank " << rank << ": " << endings[rank]->what();
  }
}

std::string common_error(int ranks, tnt_status_t status, const Body& body) {
  const Endings endings = ThreadJob(ranks).run(body);
  std::string message;
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    if (!endings[rank]) {
      ADD_FAILURE() << "rank " << rank << " saw no error";
      continue;
    }
    EXPECT_EQ(endings[rank]->status(), status) << endings[rank]->what();
    if (message.empty()) message = endings[rank]->what();
    EXPECT_EQ(endings[rank]->what(), message) << "rank " << rank;
  }
  return message;
}

}  // namespace tnt::testing
