// Every rank runs the same tests in the same order. Rank 0 alone reports passed tests, every rank its failures.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "mpi/program.hpp"

namespace {

int level = -1;

const char* variable(const char* one, const char* other) {
  const char* value = std::getenv(one);
  return value != nullptr ? value : std::getenv(other);
}

// One machine as several nodes; ranks alternate between them.
void pretend_nodes(int rank) {
  const char* nodes = std::getenv("TEST_NODES");
  if (nodes == nullptr || std::atoi(nodes) < 2) return;
  setenv("TNT_INTERNAL_NODE", std::to_string(rank % std::atoi(nodes)).c_str(), 1);
}

}  // namespace

int tnt::testing::program_level() { return level; }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--mpi=multiple") == 0) level = MPI_THREAD_MULTIPLE;
    if (std::strcmp(argv[i], "--mpi=serialized") == 0) level = MPI_THREAD_SERIALIZED;
    if (std::strcmp(argv[i], "--mpi=funneled") == 0) level = MPI_THREAD_FUNNELED;
  }
  if (level >= 0) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    level = provided;
  }
  const char* rank = variable("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  pretend_nodes(rank == nullptr ? 0 : std::atoi(rank));
  if (rank != nullptr && std::atoi(rank) != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    testing::TestEventListener* printer = listeners.Release(listeners.default_result_printer());
    struct Quiet : testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed()) {
          std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.summary());
        }
      }
    };
    delete printer;
    listeners.Append(new Quiet);
  }
  const int result = RUN_ALL_TESTS();
  if (level >= 0) MPI_Finalize();
  return result;
}
