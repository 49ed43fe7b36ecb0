// The C functions of the reducer.
#include "reducer/reducer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>

#include "api/boundary.hpp"
#include "api/runtime.hpp"
#include "base/log.hpp"

struct tnt_reducer {
  tnt_reducer(std::unique_ptr<tnt::Communicator> comm, tnt::Plan plan, tnt::ReducerOptions options, tnt::Trace* trace)
      : reducer(std::move(comm), std::move(plan), std::move(options), trace) {}
  tnt::Reducer reducer;
};

namespace {

using namespace tnt;

std::vector<TensorSpec> specs_of(const tnt_tensor_t* tensors, std::size_t n) {
  std::vector<TensorSpec> specs;
  if (n > 0) required(tensors, "tensors");
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = tensors[i].name == nullptr ? fmt::format("tensor {}", i) : tensors[i].name;
    if (!is_dtype(tensors[i].dtype)) fail(TNT_INVALID_ARGUMENT, "tensor '{}' has no valid dtype", name);
    specs.push_back({name, tensors[i].count, tensors[i].dtype});
  }
  return specs;
}

tnt_reducer_options_t checked(const tnt_reducer_options_t* options) {
  tnt_reducer_options_t result = TNT_REDUCER_OPTIONS_INITIALIZER;
  if (options == nullptr) return result;
  if (options->size < offsetof(tnt_reducer_options_t, wire_dtype)) {
    fail(TNT_INVALID_ARGUMENT, "options->size is {}: start from TNT_REDUCER_OPTIONS_INITIALIZER", options->size);
  }
  result.wire_dtype = TNT_WIRE_OWN;  // a caller whose header has no such field does not count on it
  std::memcpy(&result, options, std::min(options->size, sizeof(result)));
  return result;
}

std::optional<tnt_dtype_t> wire_of(const tnt_reducer_options_t& options, const Settings& settings) {
  switch (options.wire_dtype) {
    case TNT_WIRE_DEFAULT: return settings.gradient_dtype;
    case TNT_WIRE_OWN: return std::nullopt;
    case TNT_FLOAT16: return TNT_FLOAT16;
    case TNT_BFLOAT16: return TNT_BFLOAT16;
    default: break;
  }
  fail(TNT_INVALID_ARGUMENT, "options->wire_dtype is {}: use TNT_FLOAT16, TNT_BFLOAT16, TNT_WIRE_OWN or TNT_WIRE_DEFAULT",
       options.wire_dtype);
}

// The C function as the reducer calls it.
BucketHook hook_of(const Plan& plan, tnt_bucket_hook_t hook, void* user_data) {
  if (hook == nullptr) return {};
  return [&plan, hook, user_data](std::size_t index, void* data) -> std::optional<std::string> {
    const Bucket& of = plan.buckets()[index];
    tnt_packed_bucket_t packed{index, data, of.count, of.dtype, of.tensors.data(), of.tensors.size(), {}};
    const int result = hook(&packed, user_data);
    if (result == 0) return std::nullopt;
    packed.reason[sizeof(packed.reason) - 1] = '\0';
    return packed.reason[0] != '\0' ? std::string(packed.reason) : fmt::format("it returned {}", result);
  };
}

// Where nothing is gained by measuring: on one rank, and for models of a bucket or two.
constexpr std::size_t plain_threshold = std::size_t{4} * 1024 * 1024;

// What the user wishes, if anything.
std::optional<std::size_t> threshold_of(const tnt_reducer_options_t& options, const Settings& settings) {
  if (options.fusion_threshold != TNT_FUSION_DEFAULT) return options.fusion_threshold;
  return settings.fusion_threshold;
}

// Collective. On the executor of the communicator.
Plan make_plan(tnt_comm& on, const std::vector<TensorSpec>& specs, std::optional<std::size_t> threshold,
               std::optional<tnt_dtype_t> wire, const std::vector<std::size_t>& arrival, const std::string& context,
               const CallContext& call) {
  Plan plan(specs, threshold.value_or(plain_threshold), wire, arrival);
  compare_plans(plan, threshold ? context : context + ", bucket size to be measured", *on.communicator, call);
  if (threshold || on.communicator->size() == 1 || plan.bytes() <= least_threshold) return plan;
  if (!on.speed) on.speed = measure_speed(*on.communicator, call);
  return {specs, choose_threshold(plan.bytes(), *on.speed), wire, arrival};
}

void check_stream(tnt_stream_t stream) {
  if (stream != nullptr) fail(TNT_UNSUPPORTED, "stream is not NULL: this build moves host memory only");
}

void log_plan(const Plan& plan, const std::string& name) {
  for (std::size_t bucket = 0; bucket < plan.buckets().size(); ++bucket) {
    log(LogLevel::info, "{}: {}", name, plan.describe(bucket));
  }
}

}  // namespace

extern "C" {

tnt_status_t tnt_reducer_create(tnt_comm_t comm, const tnt_tensor_t* tensors, size_t n_tensors,
                                const tnt_reducer_options_t* options, tnt_reducer_t* reducer) {
  return guarded([&] {
    required(reducer, "reducer") = nullptr;
    tnt_comm& on = required(comm, "comm");
    Runtime& runtime = Runtime::get();
    const tnt_reducer_options_t wishes = checked(options);
    const ReducerOptions settings{.name = wishes.name == nullptr ? "gradients" : wishes.name,
                                  .timeout = runtime.settings().timeout,
                                  .overlap = runtime.settings().overlap};
    const std::vector<TensorSpec> specs = specs_of(tensors, n_tensors);
    const std::optional<std::size_t> threshold = threshold_of(wishes, runtime.settings());
    const std::optional<tnt_dtype_t> wire = wire_of(wishes, runtime.settings());
    const std::vector<std::size_t> arrival =
        wishes.arrival == nullptr ? std::vector<std::size_t>{} : std::vector(wishes.arrival, wishes.arrival + n_tensors);
    std::optional<Plan> plan;
    std::unique_ptr<Communicator> own;
    on.executor.run([&] {
      const std::string detail = fmt::format("making the plan of {}", settings.name);
      const CallContext call{.timeout = settings.timeout, .detail = detail};
      plan = make_plan(on, specs, threshold, wire, arrival, wishes.context == nullptr ? "" : wishes.context, call);
      own = on.communicator->split(0, 0, call);
    });
    log_plan(*plan, settings.name);
    *reducer = new tnt_reducer(std::move(own), *std::move(plan), settings, &runtime.trace());
  });
}

tnt_status_t tnt_reducer_bucket_count(tnt_reducer_t reducer, size_t* n_buckets) {
  return guarded([&] { required(n_buckets, "n_buckets") = required(reducer, "reducer").reducer.plan().buckets().size(); });
}

tnt_status_t tnt_reducer_fusion_threshold(tnt_reducer_t reducer, size_t* bytes) {
  return guarded([&] { required(bytes, "bytes") = required(reducer, "reducer").reducer.plan().fusion_threshold(); });
}

tnt_status_t tnt_reducer_bucket(tnt_reducer_t reducer, size_t index, tnt_bucket_t* bucket) {
  return guarded([&] {
    const auto& buckets = required(reducer, "reducer").reducer.plan().buckets();
    if (index >= buckets.size())
      fail(TNT_INVALID_ARGUMENT, "bucket {} is not in the plan of {} buckets", index, buckets.size());
    const Bucket& of = buckets[index];
    required(bucket, "bucket") = {of.count,          of.bytes(),
                                  of.dtype,          of.tensors.data(),
                                  of.tensors.size(), required(reducer, "reducer").reducer.description(index).c_str()};
  });
}

tnt_status_t tnt_reducer_set_hook(tnt_reducer_t reducer, tnt_bucket_hook_t hook, void* user_data) {
  return guarded([&] {
    Reducer& on = required(reducer, "reducer").reducer;
    on.set_hook(hook_of(on.plan(), hook, user_data));
  });
}

tnt_status_t tnt_reducer_ready(tnt_reducer_t reducer, size_t tensor, const void* gradient, void* out, double scale,
                               tnt_stream_t stream) {
  return guarded([&] {
    check_stream(stream);
    if (!std::isfinite(scale)) fail(TNT_INVALID_ARGUMENT, "scale {} is not a finite number", scale);
    required(reducer, "reducer").reducer.ready(tensor, {.in = gradient, .out = out, .scale = scale});
  });
}

tnt_status_t tnt_reducer_wait_bucket(tnt_reducer_t reducer, size_t bucket, tnt_stream_t stream) {
  return guarded([&] {
    check_stream(stream);
    required(reducer, "reducer").reducer.wait_bucket(bucket);
  });
}

tnt_status_t tnt_reducer_finish(tnt_reducer_t reducer, tnt_stream_t stream) {
  return guarded([&] {
    check_stream(stream);
    required(reducer, "reducer").reducer.finish();
  });
}

tnt_status_t tnt_reducer_tensor_steps(tnt_reducer_t reducer, size_t tensor, uint64_t* steps) {
  return guarded([&] { required(steps, "steps") = required(reducer, "reducer").reducer.tensor_steps(tensor); });
}

tnt_status_t tnt_reducer_stats(tnt_reducer_t reducer, tnt_reducer_stats_t* stats) {
  return guarded([&] {
    const ReducerStats of = required(reducer, "reducer").reducer.stats();
    if (required(stats, "stats").size < sizeof(tnt_reducer_stats_t)) {
      fail(TNT_INVALID_ARGUMENT, "stats->size is {}: start from TNT_REDUCER_STATS_INITIALIZER", stats->size);
    }
    const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
    const auto& [pack, wait, reduce, unpack] = of.phase_ns;
    *stats = {stats->size,   of.steps,      of.bytes,        seconds(of.busy_ns), seconds(of.exposed_ns),
              seconds(pack), seconds(wait), seconds(reduce), seconds(unpack)};
  });
}

tnt_status_t tnt_reducer_destroy(tnt_reducer_t reducer) {
  return guarded([&] { delete reducer; });
}

}  // extern "C"
