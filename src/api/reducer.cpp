// The C functions of the reducer.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "api/arguments.hpp"
#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "base/log.hpp"
#include "kernels/cpu/reduce.hpp"
#include "reducer/device_reducer.hpp"
#include "reducer/reducer.hpp"

struct tnt_reducer {
  std::unique_ptr<tnt::Communicator> host{};  // of a device reducer: must outlive it
  std::unique_ptr<tnt::GradientReducer> reducer;
};

namespace {

using namespace tnt;

std::vector<TensorSpec> specs_of(const tnt_tensor_t* tensors, std::size_t n) {
  std::vector<TensorSpec> specs;
  if (n > 0) required(tensors, "tensors");
  std::unordered_map<std::string_view, std::size_t> seen;
  constexpr std::size_t most = SIZE_MAX / 16;  // in bytes of the largest element
  std::size_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto& [name, count, dtype] = tensors[i];
    if (name == nullptr) fail(TNT_INVALID_ARGUMENT, "tensors[{}].name is NULL: give each tensor a name", i);
    if (const auto [first, is_new] = seen.try_emplace(name, i); !is_new) {
      fail(TNT_INVALID_ARGUMENT, "tensors[{}] has the name '{}' of tensors[{}]: give each tensor a name of its own", i, name,
           first->second);
    }
    if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "tensor '{}' has no valid dtype", name);
    if (count > most - total) fail(TNT_INVALID_ARGUMENT, "tensors[{}].count of '{}', {}, is too large", i, name, count);
    total += count;
    specs.push_back({name, count, dtype});
  }
  return specs;
}

void set_owners(std::vector<TensorSpec>& specs, const int* owners, int ranks) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (owners[i] < 0 || owners[i] >= ranks) {
      fail(TNT_INVALID_ARGUMENT, "options->owners[{}] is {}, the rank that needs the sum of '{}': use 0 to {}", i, owners[i],
           specs[i].name, ranks - 1);
    }
    specs[i].owner = owners[i];
  }
}

tnt_reducer_options_t with_defaults(const tnt_reducer_options_t* options) {
  tnt_reducer_options_t defaults = TNT_REDUCER_OPTIONS_INITIALIZER;
  if (options == nullptr) return defaults;
  check_struct_size(options->size, offsetof(tnt_reducer_options_t, wire_dtype), "options", "TNT_REDUCER_OPTIONS_INITIALIZER");
  defaults.wire_dtype = TNT_WIRE_OWN;  // a caller whose header has no such field does not count on it
  return read_struct(*options, defaults);
}

std::optional<tnt_dtype_t> wire_of(const tnt_reducer_options_t& options, const Settings& settings) {
  switch (options.wire_dtype) {
    case TNT_WIRE_DEFAULT: return settings.gradient_dtype;
    case TNT_WIRE_OWN: return std::nullopt;
    case TNT_FLOAT16: return TNT_FLOAT16;
    case TNT_BFLOAT16: return TNT_BFLOAT16;
    case TNT_FLOAT8_E4M3:
    case TNT_FLOAT8_E5M2:
      if (options.device != TNT_DEVICE_HOST) return static_cast<tnt_dtype_t>(options.wire_dtype);
      fail(TNT_UNSUPPORTED, "options->wire_dtype: {} is for gradients on a device only: use TNT_BFLOAT16",
           dtype_name(static_cast<tnt_dtype_t>(options.wire_dtype)));
    default: break;
  }
  fail(TNT_INVALID_ARGUMENT,
       "options->wire_dtype is {}: use TNT_FLOAT16, TNT_BFLOAT16, TNT_FLOAT8_E4M3, TNT_FLOAT8_E5M2, TNT_WIRE_OWN or "
       "TNT_WIRE_DEFAULT",
       options.wire_dtype);
}

// Adapts the C function to the reducer's interface.
BucketHook hook_of(const Plan& plan, tnt_bucket_hook_t hook, void* user_data) {
  if (hook == nullptr) return {};
  return [&plan, hook, user_data](const PackedBucket& bucket) -> std::optional<std::string> {
    const Bucket& of = plan.buckets()[bucket.bucket];
    tnt_packed_bucket_t packed{.size = sizeof(tnt_packed_bucket_t),
                               .index = bucket.bucket,
                               .data = bucket.data,
                               .count = bucket.count,
                               .dtype = of.dtype,
                               .tensors = of.tensors.data(),
                               .n_tensors = of.tensors.size(),
                               .reason = {},
                               .offsets = bucket.offsets.data(),
                               .stream = bucket.stream};
    const int result = hook(&packed, user_data);
    if (result == 0) return std::nullopt;
    packed.reason[sizeof(packed.reason) - 1] = '\0';
    return packed.reason[0] != '\0' ? std::string(packed.reason) : fmt::format("it returned {}", result);
  };
}

// Where measuring is not worthwhile: on one rank, and for models with one or two buckets.
constexpr std::size_t default_fusion_threshold = std::size_t{4} * 1024 * 1024;

// The user's value, if any.
std::optional<std::size_t> threshold_of(const tnt_reducer_options_t& options, const Settings& settings) {
  if (options.fusion_threshold != TNT_FUSION_DEFAULT) return options.fusion_threshold;
  return settings.fusion_threshold;
}

// The part of the plan's context that ranks must agree on. In host memory every run gives the same bits, so ranks need not
// agree there.
std::string_view determinism_of(const tnt_reducer_options_t& options) {
  if (options.determinism == TNT_DETERMINISM_RANKS) return ", the same bits on any number of ranks (determinism)";
  if (options.determinism == TNT_DETERMINISM_RUN && options.device != TNT_DEVICE_HOST)
    return ", the same bits in every run (determinism)";
  return "";
}

// The inputs of a plan. Without a threshold, the library chooses the size of buckets.
struct PlanConfig {
  std::vector<TensorSpec> tensors;
  std::optional<std::size_t> threshold;
  std::optional<tnt_dtype_t> wire;
  std::vector<std::size_t> gradient_order;
  std::string context;
};

PlanConfig config_of(const tnt_tensor_t* tensors, std::size_t n, const tnt_reducer_options_t& options,
                     const Settings& settings) {
  PlanConfig config{.tensors = specs_of(tensors, n),
                    .threshold = threshold_of(options, settings),
                    .wire = wire_of(options, settings),
                    .gradient_order = {},
                    .context = options.context == nullptr ? "" : options.context};
  if (options.gradient_order != nullptr) config.gradient_order.assign(options.gradient_order, options.gradient_order + n);
  if (!config.threshold) config.context += ", bucket size to be measured";
  if (options.device != TNT_DEVICE_HOST) config.context += ", gradients on a device";
  if (options.gradients_in_buckets != 0) config.context += ", gradients in buckets";
  if (options.clip_norm != 0.0) config.context += fmt::format(", clipped to the norm {}", options.clip_norm);
  config.context += determinism_of(options);
  return config;
}

// Collective. measure: returns the speed of the transport that carries the buckets.
template <typename Measure>
Plan make_plan(const PlanConfig& config, Communicator& comm, const CallContext& call, const Measure& measure) {
  const auto& [tensors, threshold, wire, gradient_order, context] = config;
  Plan plan(tensors, threshold.value_or(default_fusion_threshold), wire, gradient_order);
  compare_plans(plan, context, comm, call);
  if (threshold || comm.size() == 1 || plan.bytes() <= min_fusion_threshold) return plan;
  return {tensors, choose_fusion_threshold(plan.bytes(), measure()), wire, gradient_order};
}

// Collective. Runs on the executor of the communicator.
std::unique_ptr<tnt_reducer> make_host_reducer(tnt_comm& on, const PlanConfig& config, ReducerOptions options, bool flat_sums,
                                               const CallContext& call) {
  Plan plan = make_plan(config, *on.communicator, call, [&] {
    if (!on.speed) on.speed = measure_speed(*on.communicator, call);
    return *on.speed;
  });
  const auto pool = flat_sums ? on.pool_with_flat_sums : on.pool;
  auto [communicator, index] = pool->take(*on.communicator, call);
  options.recycle = [pool, index = index](std::unique_ptr<Communicator> unused) {
    pool->give_back({std::move(unused), index});
  };
  Runtime& runtime = Runtime::get();
  return std::make_unique<tnt_reducer>(
      tnt_reducer{nullptr, std::make_unique<Reducer>(std::move(communicator), std::move(plan), std::move(options),
                                                     runtime.progress_engine(), &runtime.trace())});
}

std::unique_ptr<tnt_reducer> make_device_reducer(tnt_comm& on, const PlanConfig& config, const tnt_reducer_options_t& options,
                                                 const std::string& name, const CallContext& call) {
  const bool deterministic = options.determinism == TNT_DETERMINISM_RUN;  // for RANKS, NCCL only moves bytes
  Settings job = Runtime::get().settings();
  job.timeout = call.timeout;
  DeviceGroup group = connect_devices(options.device, *on.communicator, job, call, deterministic, options.max_ctas);
  Plan plan =
      make_plan(config, *group.host, call, [&] { return measure_speed(*group.device, *group.comm, *group.host, call); });
  const DeviceReducerOptions settings{.name = name,
                                      .timeout = call.timeout,
                                      .rank_invariant = options.determinism == TNT_DETERMINISM_RANKS,
                                      .statistics = options.statistics != 0,
                                      .timing = static_cast<std::size_t>(options.timing),
                                      .accumulate = options.accumulate != 0,
                                      .gradients_in_buckets = options.gradients_in_buckets != 0,
                                      .clip_norm = options.clip_norm,
                                      .max_ctas = static_cast<std::uint32_t>(options.max_ctas)};
  Trace& trace = Runtime::get().trace();
  auto reducer = std::make_unique<DeviceReducer>(std::move(group.device), std::move(group.comm), std::move(plan), settings,
                                                 trace.enabled() ? &trace : nullptr);
  return std::make_unique<tnt_reducer>(tnt_reducer{std::move(group.host), std::move(reducer)});
}

// Checks the options that concern devices.
void check_device_options(const tnt_reducer_options_t& options) {
  if (options.device < TNT_DEVICE_HOST) {
    fail(TNT_INVALID_ARGUMENT, "options->device is {}: use the index of a CUDA device, or TNT_DEVICE_HOST", options.device);
  }
  if (options.determinism < TNT_DETERMINISM_DEFAULT || options.determinism > TNT_DETERMINISM_RANKS) {
    fail(TNT_INVALID_ARGUMENT, "options->determinism {} is not a tnt_determinism_t", options.determinism);
  }
  if (!std::isfinite(options.clip_norm) || options.clip_norm < 0.0) {
    fail(TNT_INVALID_ARGUMENT, "options->clip_norm is {}: use the greatest norm that results may have, or 0 for any",
         options.clip_norm);
  }
  if (options.max_ctas < 0) fail(TNT_INVALID_ARGUMENT, "options->max_ctas is {}", options.max_ctas);
  if (options.timing < 0) fail(TNT_INVALID_ARGUMENT, "options->timing is {}", options.timing);
  if (options.device != TNT_DEVICE_HOST) return;
  if (options.statistics != 0) fail(TNT_UNSUPPORTED, "options->statistics: for gradients on a device only");
  if (options.timing != 0) fail(TNT_UNSUPPORTED, "options->timing: for gradients on a device only: others are timed anyway");
  if (options.accumulate != 0) fail(TNT_UNSUPPORTED, "options->accumulate: for gradients on a device only");
  if (options.gradients_in_buckets != 0) {
    fail(TNT_UNSUPPORTED,
         "options->gradients_in_buckets: for gradients on a device only: a bucket in host memory is never held whole");
  }
  if (options.clip_norm != 0.0) fail(TNT_UNSUPPORTED, "options->clip_norm: for gradients on a device only");
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
    refuse_in_group("tnt_reducer_create");
    required(reducer, "reducer") = nullptr;
    const HandleUse live(comm);
    tnt_comm& on = *live;
    Runtime& runtime = Runtime::get();
    const tnt_reducer_options_t given = with_defaults(options);
    check_device_options(given);
    const ReducerOptions settings{.name = given.name == nullptr ? "gradients" : given.name,
                                  .timeout = runtime.timeout(on),
                                  .overlap = runtime.settings().overlap};
    PlanConfig config = config_of(tensors, n_tensors, given, runtime.settings());
    if (given.owners != nullptr) set_owners(config.tensors, given.owners, on.communicator->size());
    std::unique_ptr<tnt_reducer> made;
    on.executor.run([&] {
      const std::string detail = fmt::format("making the plan of {}", settings.name);
      const CallContext call{.timeout = settings.timeout, .detail = detail};
      const bool flat_sums = given.determinism == TNT_DETERMINISM_RANKS;
      made = given.device == TNT_DEVICE_HOST ? make_host_reducer(on, config, settings, flat_sums, call)
                                             : make_device_reducer(on, config, given, settings.name, call);
    });
    log_plan(made->reducer->plan(), settings.name);
    *reducer = make_handle(std::move(made));
  });
}

tnt_status_t tnt_add_scaled(const void* const* terms, const double* scales, size_t n, void* out, size_t count,
                            tnt_dtype_t dtype) {
  return guarded_in_forks([&] {
    check_buffer(out, "out", count, dtype);
    if (n == 0) fail(TNT_INVALID_ARGUMENT, "n is 0: nothing can be added up");
    required(terms, "terms");
    required(scales, "scales");
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(scales[i])) fail(TNT_INVALID_ARGUMENT, "scales[{}] is {}, not a finite number", i, scales[i]);
      if (is_integer(dtype) && scales[i] != 0.0 && scales[i] != 1.0) {
        fail(TNT_INVALID_ARGUMENT, "{} cannot be scaled by {} when they are added: use 1 or 0", dtype_name(dtype), scales[i]);
      }
      if (count > 0 && scales[i] != 0.0 && terms[i] == nullptr) fail(TNT_INVALID_ARGUMENT, "terms[{}] is NULL", i);
    }
    add_scaled(out, {terms, n}, {scales, n}, count, dtype);
  });
}

tnt_status_t tnt_reducer_bucket_count(tnt_reducer_t reducer, size_t* n_buckets) {
  return guarded([&] { required(n_buckets, "n_buckets") = HandleUse(reducer)->reducer->plan().buckets().size(); });
}

tnt_status_t tnt_reducer_fusion_threshold(tnt_reducer_t reducer, size_t* bytes) {
  return guarded([&] { required(bytes, "bytes") = HandleUse(reducer)->reducer->plan().fusion_threshold(); });
}

tnt_status_t tnt_reducer_bucket(tnt_reducer_t reducer, size_t index, tnt_bucket_t* bucket) {
  return guarded([&] {
    const HandleUse live(reducer);
    const auto& buckets = live->reducer->plan().buckets();
    if (index >= buckets.size())
      fail(TNT_INVALID_ARGUMENT, "bucket {} is not in the plan of {} buckets", index, buckets.size());
    const Bucket& of = buckets[index];
    check_struct_size(required(bucket, "bucket").size, offsetof(tnt_bucket_t, description), "bucket", "TNT_BUCKET_INITIALIZER");
    write_struct(*bucket, {sizeof(tnt_bucket_t), of.count, of.bytes(), of.dtype, of.tensors.data(), of.tensors.size(),
                           live->reducer->description(index).c_str()});
  });
}

tnt_status_t tnt_reducer_set_hook(tnt_reducer_t reducer, tnt_bucket_hook_t hook, void* user_data) {
  return guarded([&] {
    const HandleUse live(reducer);
    GradientReducer& on = *live->reducer;
    on.set_hook(hook_of(on.plan(), hook, user_data));
  });
}

tnt_status_t tnt_reducer_ready(tnt_reducer_t reducer, size_t tensor, const void* gradient, void* out, double scale,
                               tnt_stream_t stream) {
  return guarded([&] {
    if (!std::isfinite(scale)) fail(TNT_INVALID_ARGUMENT, "scale {} is not a finite number", scale);
    HandleUse(reducer)->reducer->ready(tensor, {.in = gradient, .out = out, .scale = scale}, stream);
  });
}

tnt_status_t tnt_reducer_ready_many(tnt_reducer_t reducer, const size_t* tensors, const void* const* gradients,
                                    void* const* outs, const double* scales, size_t n, tnt_stream_t stream) {
  return guarded([&] {
    const HandleUse live(reducer);
    if (n == 0) return;
    required(tensors, "tensors");
    required(gradients, "gradients");
    std::vector<TensorView> views(n);
    for (std::size_t i = 0; i < n; ++i) {
      views[i] = {.in = gradients[i], .out = outs == nullptr ? nullptr : outs[i], .scale = scales == nullptr ? 1.0 : scales[i]};
      if (!std::isfinite(views[i].scale))
        fail(TNT_INVALID_ARGUMENT, "scales[{}] is {}, not a finite number", i, views[i].scale);
    }
    live->reducer->ready_many({tensors, n}, views, stream);
  });
}

tnt_status_t tnt_reducer_wait_bucket(tnt_reducer_t reducer, size_t bucket, tnt_stream_t stream) {
  return guarded([&] { HandleUse(reducer)->reducer->wait_bucket(bucket, stream); });
}

tnt_status_t tnt_reducer_finish(tnt_reducer_t reducer, tnt_stream_t stream) {
  return guarded([&] { HandleUse(reducer)->reducer->finish(stream); });
}

tnt_status_t tnt_reducer_check(tnt_reducer_t reducer) {
  return guarded([&] { HandleUse(reducer)->reducer->check(); });
}

tnt_status_t tnt_reducer_gradient_buffer(tnt_reducer_t reducer, size_t tensor, void** buffer) {
  return guarded([&] { required(buffer, "buffer") = HandleUse(reducer)->reducer->gradient_buffer(tensor); });
}

tnt_status_t tnt_reducer_statistics(tnt_reducer_t reducer, const tnt_statistics_t** statistics) {
  return guarded([&] {
    static_assert(sizeof(tnt_statistics_t) == sizeof(gpu::Statistics));
    const HandleUse live(reducer);
    const auto* of = dynamic_cast<const DeviceReducer*>(live->reducer.get());
    const gpu::Statistics* found = of == nullptr ? nullptr : of->statistics();
    if (found == nullptr) fail(TNT_INVALID_ARGUMENT, "the reducer was made without options->statistics");
    required(statistics, "statistics") = reinterpret_cast<const tnt_statistics_t*>(found);
  });
}

tnt_status_t tnt_reducer_tensor_steps(tnt_reducer_t reducer, size_t tensor, uint64_t* steps) {
  return guarded([&] { required(steps, "steps") = HandleUse(reducer)->reducer->tensor_steps(tensor); });
}

tnt_status_t tnt_reducer_stats(tnt_reducer_t reducer, tnt_reducer_stats_t* stats) {
  return guarded([&] {
    const ReducerStats of = HandleUse(reducer)->reducer->stats();
    check_struct_size(required(stats, "stats").size, offsetof(tnt_reducer_stats_t, pack), "stats",
                      "TNT_REDUCER_STATS_INITIALIZER");
    const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
    const auto& [pack, wait, reduce, unpack] = of.phase_ns;
    write_struct(*stats, {sizeof(tnt_reducer_stats_t), of.steps, of.bytes, seconds(of.busy_ns), seconds(of.exposed_ns),
                          seconds(pack), seconds(wait), seconds(reduce), seconds(unpack)});
  });
}

tnt_status_t tnt_reducer_destroy(tnt_reducer_t reducer) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] {
    if (reducer != nullptr) HandleUse(reducer)->reducer->check_unused();
    destroy_handle(reducer);
  });
}

}  // extern "C"
