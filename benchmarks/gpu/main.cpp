// tnt_gpu_bench: the cost of the GPU path on this GPU, as JSON Lines. tools/gpu-check runs it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "benchmarks/gpu/cases.hpp"
#include "benchmarks/types.hpp"
#include "common/error.hpp"

namespace tnt::bench {
namespace {

struct Choice {
  std::string what;
  std::vector<std::string> models{"resnet50"};
  double seconds = 0.15;
  double backward_ms = 20;
  std::size_t max_bytes = std::size_t{256} << 20;
  int repeats = 15;
};

void check_device() {
  int devices = 0;
  const char* why = nullptr;
  TNT_CHECK(tnt_device_count(&devices, &why));
  if (devices == 0) throw Failure(fmt::format("no GPU can be used: {}", why));
}

// Makes the rank's GPU current for this thread.
Trainer join() {
  Trainer trainer;
  int devices = 0;
  int local_rank = 0;
  TNT_CHECK(tnt_init(nullptr));
  TNT_CHECK(tnt_comm_world(&trainer.comm));
  TNT_CHECK(tnt_comm_rank(trainer.comm, &trainer.rank));
  TNT_CHECK(tnt_comm_size(trainer.comm, &trainer.ranks));
  TNT_CHECK(tnt_comm_local_rank(trainer.comm, &local_rank));
  TNT_CUDA(cudaGetDeviceCount(&devices));
  trainer.device = local_rank % devices;
  TNT_CUDA(cudaSetDevice(trainer.device));
  return trainer;
}

void run(const Choice& choice) {
  check_device();
  if (choice.what == "buckets") {
    print_line(describe_device(0));
    for (const std::string& name : choice.models) run_bucket_cases(find_model(name), choice.seconds);
    return;
  }
  Trainer trainer = join();
  {
    const CudaStream stream;
    trainer.stream = stream.get();
    if (trainer.rank == 0) print_line(describe_device(trainer.device));
    if (choice.what == "capture") run_capture_case(trainer);
    if (choice.what == "abort") run_abort_case(trainer);
    if (choice.what == "all_reduce") run_all_reduce_cases(trainer, choice.max_bytes, choice.repeats);
    for (const std::string& name : choice.models) {
      if (choice.what == "reducer") run_reducer_case(trainer, find_model(name));
      if (choice.what == "overlap") run_overlap_case(trainer, find_model(name), 1e3 * choice.backward_ms);
    }
    TNT_CHECK(tnt_barrier(trainer.comm, nullptr, nullptr));  // nobody leaves while other ranks work
  }
  TNT_CHECK(tnt_finalize());
}

Choice read(int argc, char** argv, CLI::App& app) {
  Choice choice;
  app.add_option("what", choice.what,
                 "buckets: pack and unpack; reducer: host time of a step; overlap; all_reduce; capture: a step in a "
                 "CUDA graph; abort: a rank leaves")
      ->required()
      ->check(CLI::IsMember({"buckets", "reducer", "overlap", "all_reduce", "capture", "abort"}));
  app.add_option("--model", choice.models, "whose gradients: resnet50, transformer_big, bert_large");
  app.add_option("--seconds", choice.seconds, "for each time of buckets")->check(CLI::PositiveNumber);
  app.add_option("--backward-ms", choice.backward_ms, "that overlap computes in a step")->check(CLI::PositiveNumber);
  app.add_option("--max-bytes", choice.max_bytes, "of all_reduce")->check(CLI::Range(std::size_t{4}, std::size_t{1} << 34));
  app.add_option("--repeats", choice.repeats, "of all_reduce: times that each size is timed; below 5: by 2 calls each")
      ->check(CLI::Range(1, 1000));
  app.parse(argc, argv);
  return choice;
}

int say(const char* message, int code) {
  fmt::print(stderr, "tnt_gpu_bench: {}\n", message);
  return code;
}

}  // namespace
}  // namespace tnt::bench

int main(int argc, char** argv) {
  using namespace tnt::bench;  // NOLINT(*-using-namespace): main is outside
  CLI::App app{"Costs of Tarantella's GPU path on this GPU, one JSON object a line."};
  try {
    run(read(argc, argv, app));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const Failure& failure) {
    return say(failure.what(), failure.code());
  } catch (const std::exception& error) {
    return say(error.what(), 1);
  }
}
