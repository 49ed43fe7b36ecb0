#include "benchmarks/simulated/simulated_run.hpp"

#include <fmt/core.h>
#include <smpi/mpi.h>
#include <smpi/smpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <simgrid/s4u/Actor.hpp>
#include <simgrid/s4u/Barrier.hpp>
#include <simgrid/s4u/Host.hpp>
#include <string>
#include <vector>

#include "benchmarks/rows.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/simulated/simulated_network.hpp"
#include "benchmarks/simulated/smpi_reference.hpp"
#include "benchmarks/statistics.hpp"
#include "benchmarks/verify.hpp"
#include "comm/network/choice.hpp"
#include "comm/network/communicator.hpp"
#include "common/error.hpp"
#include "kernels/cpu/memory_model.hpp"

// The library's clock in this program is the simulation's: the linker leads its calls of clock_gettime here (CMakeLists.txt).
extern "C" int __real_clock_gettime(clockid_t clock, timespec* now);   // NOLINT(*-reserved-identifier): the linker's names
extern "C" int __wrap_clock_gettime(clockid_t clock, timespec* now) {  // NOLINT(*-reserved-identifier)
  if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, now);
  const double seconds = simgrid::s4u::Engine::get_clock();
  now->tv_sec = static_cast<time_t>(seconds);
  now->tv_nsec = static_cast<long>((seconds - static_cast<double>(now->tv_sec)) * 1e9);
  return 0;
}

namespace tnt::bench {
namespace {

namespace s4u = simgrid::s4u;

constexpr double measuring_seconds = 600;    // more than it takes
constexpr double max_carried_bytes = 256e6;  // of all ranks' buffers together
constexpr double max_checked_terms = 1e8;    // that the checks of all ranks add up
// Smaller messages are copied when they are sent and hold what algorithms tell each other; larger ones hold data alone.
constexpr std::size_t small_message = std::size_t{64} * 1024;
bool data_is_carried = true;

void carry(simgrid::kernel::activity::CommImpl* message, void* from, std::size_t bytes) {
  if (data_is_carried || bytes < small_message) smpi_comm_copy_buffer_callback(message, from, bytes);
}

// Each rank has its share of the node's memory bandwidth, as all ranks of a node copy and sum at the same time.
class SharedMemoryBandwidth final : public MemoryModel {
 public:
  explicit SharedMemoryBandwidth(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  [[nodiscard]] bool touch(std::size_t bytes) override {
    if (bytes_per_second_ > 0) s4u::this_actor::sleep_for(static_cast<double>(bytes) / bytes_per_second_);
    return data_is_carried;
  }

 private:
  double bytes_per_second_;
};

// Address space that all ranks share, for data that nobody reads: pages that nobody touches take no memory.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw Failure(fmt::format("no {} bytes of address space for the simulated data", bytes_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { munmap(data_, bytes_); }
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// All ranks together: they are actors of one thread, so what one writes the others read after the barrier.
class Simulation {
 public:
  Simulation(const Options& options, Report& report)
      : options_(options),
        report_(report),
        ranks_(*options.ranks),
        rows_(planned_rows(options, ranks_)),
        barrier_(s4u::Barrier::create(static_cast<unsigned>(ranks_))),
        hosts_(static_cast<std::size_t>(ranks_)),
        ended_at_(static_cast<std::size_t>(ranks_)),
        verdicts_(static_cast<std::size_t>(ranks_)) {}

  void run_rank(int rank) {
    MPI_Init(nullptr, nullptr);
    if (options_.against) warm_up();
    // The world is never destroyed: it would tell every rank that it leaves, n times n messages of no interest.
    auto world = std::make_shared<NetworkWorld>(std::make_shared<SimulatedNetwork>());
    world->set_nodes(nodes_of_ranks(rank));
    auto* comm = new NetworkCommunicator(world);
    comm->set_doubling(measure_doubling(*comm, measuring_seconds));
    for (const Row& planned : rows_) run_row(planned, rank, *comm);
    if (rank == 0) finish();
    barrier_->wait();  // the first rank ends the process
  }

 private:
  using Operation = std::function<void()>;

  // A node is a host of the platform.
  std::vector<int> nodes_of_ranks(int rank) {
    hosts_[static_cast<std::size_t>(rank)] = s4u::this_actor::get_host();
    barrier_->wait();
    std::map<s4u::Host*, int> numbers;
    std::vector<int> nodes;
    for (s4u::Host* host : hosts_) nodes.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
    return nodes;
  }

  // SMPI makes communicators for the ranks of each node in the first call of an algorithm that needs them.
  static void warm_up() {
    for (const std::size_t count : {std::size_t{1}, std::size_t{256}, small_message}) {
      std::vector<float> data(count);
      smpi_all_reduce(data.data(), count, sizeof(float));
    }
  }

  void run_row(const Row& planned, int rank, Communicator& comm) {
    const Problem problem = problem_of(planned, rank);
    const Shape shape = shape_of(planned.collective, planned.bytes, tnt_dtype_size(planned.dtype), ranks_, rank);
    const std::size_t element = tnt_dtype_size(planned.dtype);
    const double terms = static_cast<double>(shape.out) * ranks_ * (reduces(planned.collective) ? ranks_ : 1.0);
    const double bytes = static_cast<double>(shape.in + shape.out) * static_cast<double>(element) * ranks_;
    const bool checked = options_.check_exact && bytes <= max_carried_bytes && terms <= max_checked_terms &&
                         (planned.op != TNT_AVG || ranks_ <= 8) && planned.collective != Collective::barrier;
    barrier_->wait();
    if (rank == 0) {
      data_is_carried = checked;
      scratch_ = std::make_unique<Scratch>(checked ? 1 : (shape.in + shape.out) * element);
      SimulatedNetwork::discard_data(checked ? nullptr : scratch_->data());
    }
    barrier_->wait();
    std::vector<std::byte> own(checked ? (shape.in + shape.out) * element : 0);
    std::byte* in = checked ? own.data() : static_cast<std::byte*>(scratch_->data());
    std::byte* out = in + shape.in * element;
    if (planned.in_place) out = in;
    if (checked) fill(problem, exact_input, in);
    const Times times = time(rank, [&] { operate(comm, planned, problem.count, in, out); });
    if (checked && !planned.in_place) verdicts_[static_cast<std::size_t>(rank)] = verify_exact(problem, out, 0);
    Row row = planned;
    if (options_.against) {
      barrier_->wait();
      data_is_carried = false;
      scratch_or(rank, shape.in * element);
      row.against = *options_.against;
      row.against_times = time(rank, [&] { smpi_all_reduce(scratch_->data(), problem.count, element); });
      row.ratio = row.against_times->p50 / times.p50;
    }
    barrier_->wait();
    if (rank == 0) report(row, times, checked && !planned.in_place);
  }

  void scratch_or(int rank, std::size_t bytes) {
    barrier_->wait();
    if (rank == 0) scratch_ = std::make_unique<Scratch>(bytes);
    barrier_->wait();
  }

  void operate(Communicator& comm, const Row& row, std::size_t count, const void* in, void* out) const {
    const CallContext context{.timeout = 1e9};
    const auto run = [&](Call::Kind kind, int root) {
      comm.run({{.kind = kind, .dtype = row.dtype, .op = row.op, .root = root, .count = count}, in, out}, context);
    };
    const int root = std::max(row.root, 0);
    switch (row.collective) {
      case Collective::all_reduce: return run(Call::all_reduce, 0);
      case Collective::reduce_scatter: return run(Call::reduce_scatter, 0);
      case Collective::all_gather: return run(Call::all_gather, 0);
      case Collective::broadcast: return run(Call::broadcast, root);
      case Collective::all_to_all: return run(Call::all_to_all, 0);
      case Collective::reduce: return run(Call::reduce, root);
      case Collective::gather: return run(Call::gather, root);
      case Collective::scatter: return run(Call::scatter, root);
      case Collective::barrier: return run(Call::barrier, 0);
      case Collective::sendrecv: {
        const int next = (comm.rank() + 1) % ranks_;
        const int previous = (comm.rank() + ranks_ - 1) % ranks_;
        if (comm.rank() % 2 == 0) run(Call::send, next);
        run(Call::recv, previous);
        if (comm.rank() % 2 != 0) run(Call::send, next);
        return;
      }
      default: throw Failure(fmt::format("{} is not simulated", name(row.collective)));
    }
  }

  // The simulated time from the start on all ranks to the last rank's end.
  Times time(int rank, const Operation& operation) {
    std::vector<double> samples;
    const int warmup = options_.warmup;
    for (int i = 0; i < warmup + *options_.iterations; ++i) {
      barrier_->wait();
      const double begin = s4u::Engine::get_clock();
      operation();
      ended_at_[static_cast<std::size_t>(rank)] = s4u::Engine::get_clock();
      barrier_->wait();
      samples.push_back((*std::max_element(ended_at_.begin(), ended_at_.end()) - begin) * 1e6);
      barrier_->wait();
    }
    const double first = samples.front();
    samples.erase(samples.begin(), samples.begin() + warmup);
    std::sort(samples.begin(), samples.end());
    return {.iterations = samples.size(),
            .min = samples.front(),
            .p50 = median(samples),
            .p95 = percentile(samples, 95),
            .max = samples.back(),
            .first = first};
  }

  void report(Row row, const Times& times, bool checked) {
    row.backend = "simulated";
    row.times = times;
    add_bandwidth(row, std::nullopt);
    if (checked) {
      row.verdict.check = "ok";
      for (const Verdict& verdict : verdicts_) {
        row.verdict.wrong += verdict.wrong;
        if (row.verdict.text.empty()) row.verdict.text = verdict.text;
      }
      if (row.verdict.wrong > 0) row.verdict.check = "wrong";
    }
    failures_ += row.verdict.check == "wrong" ? 1 : 0;
    report_.row(row);
  }

  // Ends the process: nobody waits for what the other ranks still hold.
  [[noreturn]] void finish() {
    report_.footer();
    std::fflush(nullptr);
    _exit(failures_ == 0 ? 0 : 1);
  }

  const Options& options_;
  Report& report_;
  int ranks_;
  std::vector<Row> rows_;
  s4u::BarrierPtr barrier_;
  std::unique_ptr<Scratch> scratch_;
  std::vector<s4u::Host*> hosts_;  // of the ranks
  std::vector<double> ended_at_;
  std::vector<Verdict> verdicts_;
  int failures_ = 0;
};

// An error on one rank ends the simulation: the others may wait for it for ever, in a time that does not pass.
void run_rank(Simulation& simulation, int rank) {
  try {
    simulation.run_rank(rank);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tnt-bench: {}\n", error.what());
    std::fflush(nullptr);
    _exit(1);
  }
}

}  // namespace

void run_simulated(const Options& options, const s4u::Engine& engine, const Platform& platform, Report& report) {
  double node_bandwidth = options.limit_gbps ? *options.limit_gbps * 1e9 : platform.memory_bytes_per_second;
  if (!options.measure_limit && !options.limit_gbps) node_bandwidth = 0;
  SharedMemoryBandwidth memory(node_bandwidth / platform.ranks_per_node);
  memory_model = &memory;
  s4u::Engine::get_instance()->set_default_comm_data_copy_callback(carry);
  SMPI_app_instance_register("ranks", nullptr, *options.ranks);
  Simulation simulation(options, report);
  for (int rank = 0; rank < *options.ranks; ++rank) {
    const auto actor = s4u::Actor::init(fmt::format("rank-{}", rank),
                                        platform.nodes[static_cast<std::size_t>(rank / platform.ranks_per_node)]);
    actor->set_property("instance_id", "ranks");
    actor->set_property("rank", std::to_string(rank));
    actor->start([&simulation, rank] { run_rank(simulation, rank); });
  }
  engine.run();
  throw Failure("the simulated ranks stopped before the last row");
}

}  // namespace tnt::bench
