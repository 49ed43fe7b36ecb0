// Collectives of the C API compared with MPI's own, on ranks started by mpirun: the same values over every transport.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "mpi/program.hpp"
#include "support/array.hpp"
#include "support/joined.hpp"

namespace tnt::testing {
namespace {

MPI_Datatype mpi_type(tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_FLOAT32: return MPI_FLOAT;
    case TNT_FLOAT64: return MPI_DOUBLE;
    case TNT_INT8: return MPI_INT8_T;
    case TNT_UINT8: return MPI_UINT8_T;
    case TNT_INT32: return MPI_INT32_T;
    case TNT_INT64: return MPI_INT64_T;
    case TNT_UINT32: return MPI_UINT32_T;
    case TNT_UINT64: return MPI_UINT64_T;
    default: throw std::runtime_error("MPI does not know the type");
  }
}

MPI_Op mpi_op(tnt_op_t op) {
  switch (op) {
    case TNT_SUM: return MPI_SUM;
    case TNT_MIN: return MPI_MIN;
    case TNT_MAX: return MPI_MAX;
    case TNT_PROD: return MPI_PROD;
    case TNT_LAND: return MPI_LAND;
    case TNT_LOR: return MPI_LOR;
    case TNT_LXOR: return MPI_LXOR;
    case TNT_BAND: return MPI_BAND;
    case TNT_BOR: return MPI_BOR;
    case TNT_BXOR: return MPI_BXOR;
    default: throw std::runtime_error("MPI does not know the operation");
  }
}

constexpr tnt_dtype_t mpi_dtypes[] = {TNT_FLOAT32, TNT_FLOAT64, TNT_INT8,   TNT_UINT8,
                                      TNT_INT32,   TNT_INT64,   TNT_UINT32, TNT_UINT64};
constexpr tnt_op_t mpi_ops[] = {TNT_SUM, TNT_MIN, TNT_MAX, TNT_PROD};
constexpr std::size_t counts[] = {1, 1000, 2049, 70'001, 700'001};

// The job of this process: joined in the first test, left after the last.
class MpiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (program_level() == -1 || program_level() >= MPI_THREAD_SERIALIZED) job.emplace();
  }
  static void TearDownTestSuite() { job.reset(); }
  void SetUp() override {
    if (!job) GTEST_SKIP() << "MPI does not let threads call it";
  }
  [[nodiscard]] static bool mpi() {  // one rank does not initialise MPI
    return job->size > 1;
  }
  static std::optional<Joined> job;
};
std::optional<Joined> MpiTest::job;

int from_environment(const char* one, const char* other) {
  const char* value = std::getenv(one);
  if (value == nullptr) value = std::getenv(other);
  return value == nullptr ? -1 : std::atoi(value);
}

// Ranks alternate between this many nodes. If nodes have one rank each, only the network is used.
std::string expected_transport(const std::string& wanted, int nodes, int ranks) {
  if (ranks == 1) return "local";
  const bool mpi = wanted.starts_with("mpi");
  if (nodes == 1) return mpi ? "mpi" : "shm";
  return mpi || ranks == nodes ? "mpi" : "hierarchical";
}

TEST_F(MpiTest, KnowsItsPlace) {
  EXPECT_EQ(job->rank, from_environment("OMPI_COMM_WORLD_RANK", "PMI_RANK"));
  EXPECT_EQ(job->size, from_environment("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"));
  const char* name = nullptr;
  check(tnt_comm_transport(job->world, &name));
  const int nodes = std::atoi(std::getenv("TEST_NODES"));
  EXPECT_EQ(std::string(name), expected_transport(std::getenv("TNT_TRANSPORT"), nodes, job->size));
  int local_rank = -1;
  int local_size = -1;
  check(tnt_comm_local_rank(job->world, &local_rank));
  check(tnt_comm_local_size(job->world, &local_size));
  EXPECT_EQ(local_rank, job->rank / nodes);
  EXPECT_EQ(local_size, (job->size - job->rank % nodes + nodes - 1) / nodes);
}

TEST_F(MpiTest, AllReduce) {
  for (const tnt_dtype_t dtype : mpi_dtypes) {
    for (const tnt_op_t op : mpi_ops) {
      for (const std::size_t count : counts) {
        if (count > 3000 && (op != TNT_SUM || dtype != TNT_FLOAT32)) continue;
        const Array in = exact_values(dtype, count, static_cast<unsigned>(job->rank));
        Array ours(dtype, count);
        check(all_reduce(job->world, in, ours, op));
        Array theirs = in;
        if (mpi()) MPI_Allreduce(in.data(), theirs.data(), int(count), mpi_type(dtype), mpi_op(op), MPI_COMM_WORLD);
        EXPECT_EQ(ours, theirs) << count << " of dtype " << dtype << ", op " << op;
      }
    }
  }
}

TEST_F(MpiTest, AllReduceOfBitsAndTruthValues) {
  for (const tnt_dtype_t dtype : integers) {
    for (const tnt_op_t op : integer_ops) {
      if (job->size == 1 && op <= TNT_LXOR) continue;  // MPI copies one rank's value, and we make a truth value of it
      for (const std::size_t count : {std::size_t{1}, std::size_t{2049}}) {
        const Array in = exact_values(dtype, count, static_cast<unsigned>(job->rank));
        Array ours(dtype, count);
        check(all_reduce(job->world, in, ours, op));
        Array theirs = in;
        if (mpi()) MPI_Allreduce(in.data(), theirs.data(), int(count), mpi_type(dtype), mpi_op(op), MPI_COMM_WORLD);
        EXPECT_EQ(ours, theirs) << count << " of dtype " << dtype << ", op " << op;
      }
    }
  }
}

// What MPI lacks: 16-bit floats, and the mean.
TEST_F(MpiTest, AllReduceOfHalves) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT16, TNT_BFLOAT16}) {
    for (const std::size_t count : {std::size_t{33}, std::size_t{70'001}}) {
      std::vector<Array> in;
      for (int rank = 0; rank < job->size; ++rank) in.push_back(exact_values(dtype, count, static_cast<unsigned>(rank)));
      for (const tnt_op_t op : all_ops) {
        Array data = in[static_cast<std::size_t>(job->rank)];
        check(all_reduce(job->world, data, data, op));
        EXPECT_EQ(data, reduced(in, op));
      }
    }
  }
}

TEST_F(MpiTest, SumsHaveTheSameBitsOnAllRanks) {
  const std::size_t count = 300'001;
  std::vector<float> in(count);
  for (std::size_t i = 0; i < count; ++i)
    in[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(job->rank + 1)) * 1e3F;
  std::vector<float> first(count);
  std::vector<float> again(count);
  check(tnt_all_reduce(job->world, in.data(), first.data(), count, TNT_FLOAT32, TNT_SUM, nullptr, nullptr));
  check(tnt_all_reduce(job->world, in.data(), again.data(), count, TNT_FLOAT32, TNT_SUM, nullptr, nullptr));
  EXPECT_EQ(first, again);
  check(tnt_broadcast(job->world, first.data(), again.data(), count, TNT_FLOAT32, 0, nullptr, nullptr));
  EXPECT_EQ(first, again);
}

TEST_F(MpiTest, TheOtherCollectives) {
  const auto n = static_cast<std::size_t>(job->size);
  for (const std::size_t count : counts) {
    const Array in = exact_values(TNT_INT32, count * n, static_cast<unsigned>(job->rank));
    const int items = static_cast<int>(count);
    Array ours(TNT_INT32, count);
    Array theirs = in.part(0, count);
    check(tnt_reduce_scatter(job->world, in.data(), ours.data(), count, TNT_INT32, TNT_SUM, nullptr, nullptr));
    if (mpi()) MPI_Reduce_scatter_block(in.data(), theirs.data(), items, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(ours, theirs);

    Array our_whole(TNT_INT32, count * n);
    Array their_whole = in;
    check(tnt_all_gather(job->world, in.data(), our_whole.data(), count, TNT_INT32, nullptr, nullptr));
    if (mpi()) MPI_Allgather(in.data(), items, MPI_INT32_T, their_whole.data(), items, MPI_INT32_T, MPI_COMM_WORLD);
    EXPECT_EQ(our_whole, their_whole);

    check(tnt_all_to_all(job->world, in.data(), our_whole.data(), count, TNT_INT32, nullptr, nullptr));
    if (mpi()) MPI_Alltoall(in.data(), items, MPI_INT32_T, their_whole.data(), items, MPI_INT32_T, MPI_COMM_WORLD);
    EXPECT_EQ(our_whole, their_whole);

    for (int root = 0; root < job->size; ++root) {
      Array our_part(TNT_INT32, count);
      Array their_part(TNT_INT32, count);
      if (!mpi()) our_part = their_part = in.part(0, count);
      check(tnt_reduce(job->world, in.data(), our_part.data(), count, TNT_INT32, TNT_SUM, root, nullptr, nullptr));
      if (mpi()) MPI_Reduce(in.data(), their_part.data(), items, MPI_INT32_T, MPI_SUM, root, MPI_COMM_WORLD);
      EXPECT_EQ(our_part, their_part);

      our_whole = their_whole = in;
      check(tnt_gather(job->world, in.data(), our_whole.data(), count, TNT_INT32, root, nullptr, nullptr));
      if (mpi()) MPI_Gather(in.data(), items, MPI_INT32_T, their_whole.data(), items, MPI_INT32_T, root, MPI_COMM_WORLD);
      EXPECT_EQ(our_whole, their_whole);

      check(tnt_scatter(job->world, in.data(), our_part.data(), count, TNT_INT32, root, nullptr, nullptr));
      if (mpi()) MPI_Scatter(in.data(), items, MPI_INT32_T, their_part.data(), items, MPI_INT32_T, root, MPI_COMM_WORLD);
      EXPECT_EQ(our_part, their_part);

      our_whole = their_whole = in;
      check(tnt_broadcast(job->world, our_whole.data(), our_whole.data(), count * n, TNT_INT32, root, nullptr, nullptr));
      if (mpi()) MPI_Bcast(their_whole.data(), static_cast<int>(count * n), MPI_INT32_T, root, MPI_COMM_WORLD);
      EXPECT_EQ(our_whole, their_whole);
    }
  }
}

TEST_F(MpiTest, UnevenBlocks) {
  const auto n = static_cast<std::size_t>(job->size);
  const auto self = static_cast<std::size_t>(job->rank);
  for (const std::size_t unit : {std::size_t{3}, std::size_t{20'001}}) {
    std::vector<std::size_t> counts;
    std::vector<int> items;
    std::vector<int> begins;
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < n; ++rank) {
      counts.push_back(rank == 1 ? 0 : (rank + 1) * unit);
      items.push_back(static_cast<int>(counts.back()));
      begins.push_back(static_cast<int>(total));
      total += counts.back();
    }
    const Array in = exact_values(TNT_INT32, total, static_cast<unsigned>(job->rank));
    Array ours(TNT_INT32, total);
    Array theirs = in;
    check(tnt_all_gather_v(job->world, in.data(), ours.data(), counts.data(), TNT_INT32, nullptr, nullptr));
    if (mpi()) {
      MPI_Allgatherv(in.data(), items[self], MPI_INT32_T, theirs.data(), items.data(), begins.data(), MPI_INT32_T,
                     MPI_COMM_WORLD);
    }
    EXPECT_EQ(ours, theirs);

    Array our_part(TNT_INT32, counts[self]);
    Array their_part = in.part(0, counts[self]);
    check(tnt_reduce_scatter_v(job->world, in.data(), our_part.data(), counts.data(), TNT_INT32, TNT_SUM, nullptr, nullptr));
    if (mpi()) MPI_Reduce_scatter(in.data(), their_part.data(), items.data(), MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(our_part, their_part);

    const std::vector<std::size_t> received(n, counts[self]);
    const std::vector<int> their_received(n, items[self]);
    std::vector<int> their_begins;
    for (std::size_t rank = 0; rank < n; ++rank) their_begins.push_back(static_cast<int>(rank) * items[self]);
    Array our_blocks(TNT_INT32, n * counts[self]);
    Array their_blocks = mpi() ? Array(TNT_INT32, n * counts[self]) : in;
    check(tnt_all_to_all_v(job->world, in.data(), our_blocks.data(), counts.data(), received.data(), TNT_INT32, nullptr,
                           nullptr));
    if (mpi()) {
      MPI_Alltoallv(in.data(), items.data(), begins.data(), MPI_INT32_T, their_blocks.data(), their_received.data(),
                    their_begins.data(), MPI_INT32_T, MPI_COMM_WORLD);
    }
    EXPECT_EQ(our_blocks, their_blocks);
  }
}

TEST_F(MpiTest, MessagesInARing) {
  if (job->size == 1) GTEST_SKIP() << "a rank sends nothing to itself";
  const int next = (job->rank + 1) % job->size;
  const int before = (job->rank + job->size - 1) % job->size;
  for (const std::size_t count : counts) {
    const Array own = exact_values(TNT_FLOAT64, count, static_cast<unsigned>(job->rank));
    Array got(TNT_FLOAT64, count);
    tnt_work_t work = nullptr;
    check(tnt_send(job->world, own.data(), count, TNT_FLOAT64, next, nullptr, &work));
    check(tnt_recv(job->world, got.data(), count, TNT_FLOAT64, before, nullptr, nullptr));
    check(tnt_work_wait(work, -1));
    check(tnt_work_destroy(work));
    EXPECT_EQ(got, exact_values(TNT_FLOAT64, count, static_cast<unsigned>(before)));
  }
}

// Operations of several communicators at once, while MPI itself is used, too.
TEST_F(MpiTest, CommunicatorsAtOnce) {
  constexpr std::size_t count = 50'000;
  std::vector<tnt_comm_t> parts(3);
  for (tnt_comm_t& part : parts) check(tnt_comm_split(job->world, 0, -job->rank, &part));
  std::vector<std::vector<float>> data(3, std::vector<float>(count, 1.0F));
  std::vector<tnt_work_t> works(3);
  for (std::size_t i = 0; i < 3; ++i) {
    check(tnt_all_reduce(parts[i], data[i].data(), data[i].data(), count, TNT_FLOAT32, TNT_SUM, nullptr, &works[i]));
  }
  if (mpi() && program_level() != MPI_THREAD_SERIALIZED) MPI_Barrier(MPI_COMM_WORLD);
  for (std::size_t i = 0; i < 3; ++i) {
    check(tnt_work_wait(works[i], -1));
    check(tnt_work_destroy(works[i]));
    EXPECT_EQ(data[i], std::vector<float>(count, static_cast<float>(job->size)));
    check(tnt_comm_destroy(parts[i]));
  }
}

TEST_F(MpiTest, Reducer) {
  const std::vector<std::size_t> sizes{10, 70'000, 3, 5'000};
  std::vector<std::string> names{"a", "b", "c", "d"};
  std::vector<tnt_tensor_t> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i) tensors.push_back({names[i].c_str(), sizes[i], TNT_FLOAT32});
  tnt_reducer_t reducer = nullptr;
  check(tnt_reducer_create(job->world, tensors.data(), tensors.size(), nullptr, &reducer));
  for (int step = 0; step < 5; ++step) {
    std::vector<std::vector<float>> gradients;
    for (const std::size_t size : sizes) gradients.emplace_back(size, static_cast<float>(job->rank + step));
    for (std::size_t i = sizes.size(); i-- > 0;) {
      check(tnt_reducer_ready(reducer, i, gradients[i].data(), gradients[i].data(), 0.5, nullptr));
    }
    check(tnt_reducer_finish(reducer, nullptr));
    float expected = 0;
    for (int rank = 0; rank < job->size; ++rank) expected += 0.5F * static_cast<float>(rank + step);
    for (const auto& gradient : gradients) EXPECT_EQ(gradient, std::vector<float>(gradient.size(), expected));
  }
  check(tnt_reducer_destroy(reducer));
}

// MPI's own memory and connections are in the fork, too, and it must use neither of them when it exits.
TEST_F(MpiTest, AForkOfARankIsNoRank) {
  if (job->rank == job->size - 1) {
    const pid_t process = getpid();
    const pid_t fork_of_rank = fork();
    if (fork_of_rank == 0) {
      double value = 5;
      const bool refused =
          tnt_all_reduce(job->world, &value, &value, 1, TNT_FLOAT64, TNT_SUM, nullptr, nullptr) == TNT_UNSUPPORTED &&
          tnt_comm_abort(job->world, "from a fork") == TNT_UNSUPPORTED && tnt_init(nullptr) == TNT_UNSUPPORTED;
      const std::string text = "(process " + std::to_string(process) + ") and cannot communicate";
      std::exit(refused && std::string(tnt_last_error()).find(text) != std::string::npos ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(fork_of_rank, &status, 0), fork_of_rank);
    EXPECT_EQ(status, 0);
  }
  std::vector<double> values(100'000, job->rank + 1);
  check(tnt_all_reduce(job->world, values.data(), values.data(), values.size(), TNT_FLOAT64, TNT_SUM, nullptr, nullptr));
  EXPECT_EQ(values, std::vector<double>(values.size(), job->size * (job->size + 1) / 2.0));
}

// After the job of all processes has ended.
TEST(MpiComm, ItsProcessesAreTheRanksInItsOrder) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
  options.rank = 77;  // not read
  if (initialized == 0) {
    MPI_Comm none = MPI_COMM_NULL;
    options.mpi_comm = &none;
    EXPECT_EQ(tnt_init(&options), TNT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(tnt_last_error()), "options->mpi_comm: MPI is not initialised: call MPI_Init_thread before tnt_init");
    return;
  }
  if (program_level() == MPI_THREAD_FUNNELED) GTEST_SKIP() << "MPI does not let threads call it";
  int process = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm half = MPI_COMM_NULL;
  options.mpi_comm = &half;
  EXPECT_EQ(tnt_init(&options), TNT_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tnt_last_error()).find("options->mpi_comm is MPI_COMM_NULL"), std::string::npos) << tnt_last_error();
  MPI_Comm_split(MPI_COMM_WORLD, process % 2, -process, &half);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &size);
  check(tnt_init(&options));
  {
    const Joined joined;
    EXPECT_EQ(joined.rank, rank);
    EXPECT_EQ(joined.size, size);
    for (const std::size_t count : counts) {
      const Array in = exact_values(TNT_INT32, count, static_cast<unsigned>(process));
      Array ours(TNT_INT32, count);
      Array theirs(TNT_INT32, count);
      check(all_reduce(joined.world, in, ours, TNT_SUM));
      MPI_Allreduce(in.data(), theirs.data(), static_cast<int>(count), MPI_INT32_T, MPI_SUM, half);
      EXPECT_EQ(ours, theirs);
    }
  }
  MPI_Comm_free(&half);
}

// A process of the communicator does not call.
TEST(MpiComm, WaitsNoLongerThanItsDeadline) {
  if (program_level() != MPI_THREAD_MULTIPLE) GTEST_SKIP() << "for programs that initialise MPI";
  int process = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm whole = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &whole);
  if (process == 0) {
    tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
    options.mpi_comm = &whole;
    options.join_timeout = 0.1;
    EXPECT_EQ(tnt_init(&options), TNT_TIMEOUT);
    int size = 0;
    MPI_Comm_size(whole, &size);
    EXPECT_EQ(std::string(tnt_last_error()),
              "not all " + std::to_string(size) + " processes of options->mpi_comm have called tnt_init within 0.1 s");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Request request = MPI_REQUEST_NULL;  // the others come too late, but in the end, so that MPI can end
  MPI_Comm late = MPI_COMM_NULL;
  if (process != 0) MPI_Comm_idup(whole, &late, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiLevel, TooLowIsRefused) {
  if (program_level() == -1 || program_level() >= MPI_THREAD_SERIALIZED) GTEST_SKIP() << "the level is high enough";
  EXPECT_EQ(tnt_init(nullptr), TNT_UNSUPPORTED);
  EXPECT_EQ(std::string(tnt_last_error()),
            "MPI was initialised with MPI_THREAD_FUNNELED, but Tarantella reduces in threads of its own: call MPI_Init_thread "
            "with MPI_THREAD_MULTIPLE in place of MPI_Init (mpi4py does by default)");
}

}  // namespace
}  // namespace tnt::testing
