// Invalid arguments: named in the error, refused without any effect, and everything stays usable.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "support/alone.hpp"

namespace {

using tnt::testing::expect_error;

float values[4] = {1, 2, 3, 4};
float results[4];
tnt_comm_t comm;
tnt_reducer_t reducer;
const tnt_tensor_t tensors[] = {{"a", 4, TNT_FLOAT32}, {"b", 2, TNT_INT8}};
int other = 0;
tnt_stream_t const stream = &other;  // a machine without devices has no streams

tnt_reducer_options_t reducer_options(std::size_t size) {
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  options.size = size;
  return options;
}

struct Misuse {
  const char* name;
  std::function<tnt_status_t()> call;
  const char* message;  // a part of it
  tnt_status_t status = TNT_INVALID_ARGUMENT;
};

class ArgumentsTest : public tnt::testing::Alone, public ::testing::WithParamInterface<Misuse> {
 protected:
  void SetUp() override {
    Alone::SetUp();
    comm = world;
    ASSERT_EQ(tnt_reducer_create(world, tensors, 2, nullptr, &reducer), TNT_SUCCESS) << tnt_last_error();
  }
  void TearDown() override {
    EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
    Alone::TearDown();
  }
};

TEST_P(ArgumentsTest, AreNamedAndHarmless) {
  expect_error(GetParam().call(), GetParam().status, GetParam().message);
  EXPECT_EQ(tnt_all_reduce(comm, values, results, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr), TNT_SUCCESS);
  EXPECT_EQ(results[3], 4.0F);
  char bytes[2] = {1, 2};
  EXPECT_EQ(tnt_reducer_ready(reducer, 0, values, results, 1.0, nullptr), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(tnt_reducer_ready(reducer, 1, bytes, bytes, 1.0, nullptr), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(tnt_reducer_finish(reducer, nullptr), TNT_SUCCESS) << tnt_last_error();
}

constexpr std::size_t first = 0;
const void* const some = values;
tnt_status_t ready_two(tnt_reducer_t of, double last_scale) {
  const std::size_t both[] = {0, 1};
  const void* const gradients[] = {values, values};
  const double scales[] = {1.0, last_scale};
  return tnt_reducer_ready_many(of, both, gradients, nullptr, scales, 2, nullptr);
}

constexpr auto no_dtype = static_cast<tnt_dtype_t>(12);
constexpr auto no_op = static_cast<tnt_op_t>(11);
constexpr std::size_t too_many = SIZE_MAX / 8;
constexpr std::size_t four = 4;

const void* const two[] = {values, values};
const void* const one_missing[] = {values, nullptr};
const double ones[] = {1, 1};
const double halves[] = {1, 0.5};
const double not_finite[] = {1, NAN};

tnt_status_t add_scaled(const void* const* terms, const double* scales, std::size_t n, void* out, tnt_dtype_t dtype) {
  return tnt_add_scaled(terms, scales, n, out, 2, dtype);
}

template <typename Change>
tnt_status_t create_with(const Change& change) {
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  change(options);
  tnt_reducer_t made;
  return tnt_reducer_create(comm, tensors, 2, &options, &made);
}

tnt_status_t create_of(std::initializer_list<tnt_tensor_t> wrong) {
  tnt_reducer_t made;
  return tnt_reducer_create(comm, std::data(wrong), wrong.size(), nullptr, &made);
}

tnt_comm_t made;
tnt_unique_id_t unique_id;  // zero: none
tnt_status_t create_group(std::initializer_list<int> ranks, tnt_comm_t* group = &made) {
  return tnt_comm_create_group(comm, std::data(ranks), ranks.size(), 0, group);
}

const Misuse misuses[] = {
    {"WorldNull", [] { return tnt_comm_world(nullptr); }, "comm is NULL"},
    {"SplitNull", [] { return tnt_comm_split(comm, 0, 0, nullptr); }, "part is NULL"},
    {"SplitOfNull",
     [] {
       tnt_comm_t part;
       return tnt_comm_split(nullptr, 0, 0, &part);
     },
     "comm is NULL"},
    {"GroupNull", [] { return create_group({0}, nullptr); }, "group is NULL"},
    {"GroupWithoutRanks", [] { return create_group({}); }, "the calling rank 0 is not in ranks: only members call this"},
    {"GroupOfStrangers", [] { return create_group({1}); }, "member 1 is not one of the communicator's 1 ranks"},
    {"GroupOfOneTwice",
     [] {
       return create_group({0, 0});
     },
     "rank 0 is in ranks twice"},
    {"RankNull", [] { return tnt_comm_rank(comm, nullptr); }, "rank is NULL"},
    {"RankOfNull",
     [] {
       int rank;
       return tnt_comm_rank(nullptr, &rank);
     },
     "comm is NULL"},
    {"SizeNull", [] { return tnt_comm_size(comm, nullptr); }, "size is NULL"},
    {"LocalRankNull", [] { return tnt_comm_local_rank(comm, nullptr); }, "local_rank is NULL"},
    {"LocalSizeNull", [] { return tnt_comm_local_size(comm, nullptr); }, "local_size is NULL"},
    {"TransportNull", [] { return tnt_comm_transport(comm, nullptr); }, "name is NULL"},
    {"AbortOfNull", [] { return tnt_comm_abort(nullptr, "reason"); }, "comm is NULL"},
    {"TimeoutNegative", [] { return tnt_comm_set_timeout(comm, -1); }, "seconds is -1"},
    {"TimeoutNan", [] { return tnt_comm_set_timeout(comm, NAN); }, "seconds is nan"},
    {"TimeoutComm", [] { return tnt_comm_set_timeout(nullptr, 1); }, "comm is NULL"},
    {"ErrorModeUnknown", [] { return tnt_comm_set_error_mode(comm, static_cast<tnt_error_mode_t>(2)); },
     "mode 2 is not a tnt_error_mode_t"},
    {"ErrorModeComm", [] { return tnt_comm_set_error_mode(nullptr, TNT_ERRORS_RETURN); }, "comm is NULL"},
    {"ShrinkNull", [] { return tnt_comm_shrink(comm, nullptr); }, "smaller is NULL"},
    {"ShrinkWhereErrorsEndTheJob",
     [] {
       tnt_comm_t smaller;
       return tnt_comm_shrink(comm, &smaller);
     },
     "an error of this communicator ends the job: call tnt_comm_set_error_mode with TNT_ERRORS_RETURN before the error"},
    {"UniqueIdNull", [] { return tnt_unique_id(nullptr, nullptr); }, "id is NULL"},
    {"UniqueIdOfAWord", [] { return tnt_unique_id("here", &unique_id); }, "rendezvous here: expected tcp://HOST:PORT"},
    {"UniqueIdWithoutAPort", [] { return tnt_unique_id("tcp://here", &unique_id); },
     "rendezvous tcp://here: expected tcp://HOST:PORT"},
    {"UniqueIdTooLong", [] { return tnt_unique_id(("tcp://" + std::string(220, 'h') + ":1").c_str(), &unique_id); },
     "h:1: longer than 222 bytes"},
    {"GrowNull", [] { return tnt_comm_grow(comm, &unique_id, 2, -1, nullptr); }, "larger is NULL"},
    {"GrowByNobody", [] { return tnt_comm_grow(comm, &unique_id, 1, -1, &made); },
     "ranks is 1: the larger communicator has more than the 1 of comm"},
    {"GrowToNothing", [] { return tnt_comm_grow(comm, &unique_id, 0, -1, &made); }, "ranks is 0: the larger communicator"},
    {"GrowWithoutId", [] { return tnt_comm_grow(comm, nullptr, 2, -1, &made); }, "id is NULL"},
    {"GrowWithAnotherRank", [] { return tnt_comm_grow(comm, &unique_id, 2, 1, &made); },
     "rank is 1: a member keeps its rank 0 of comm, or passes -1"},
    {"GrowWithNoId", [] { return tnt_comm_grow(comm, &unique_id, 2, -1, &made); },
     "id is not one that tnt_unique_id has made: pass on all 256 bytes of it, or its text"},
    {"ComeWithoutId", [] { return tnt_comm_grow(nullptr, nullptr, 2, 1, &made); }, "id is NULL"},
    {"ComeWithNoId", [] { return tnt_comm_grow(nullptr, &unique_id, 2, 1, &made); }, "id is not one that tnt_unique_id has made"},
    {"ComeAsNobody", [] { return tnt_comm_grow(nullptr, &unique_id, 2, -1, &made); }, "rank -1 of 2 ranks is invalid"},
    {"ComeAsOneTooMany", [] { return tnt_comm_grow(nullptr, &unique_id, 2, 2, &made); }, "rank 2 of 2 ranks is invalid"},
    {"DestroyWorld", [] { return tnt_comm_destroy(comm); }, "tnt_finalize"},
    {"AllReduceComm", [] { return tnt_all_reduce(nullptr, values, results, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "comm is NULL"},
    {"AllReduceIn", [] { return tnt_all_reduce(comm, nullptr, results, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "in is NULL"},
    {"AllReduceOverlap", [] { return tnt_all_reduce(comm, values, values + 1, 2, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "in and out overlap: out begins 4 bytes after in."},
    {"ReduceScatterOverlap",
     [] { return tnt_reduce_scatter(comm, values + 1, values, 2, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "in and out overlap: out begins 4 bytes before in."},
    {"AllGatherOverlap", [] { return tnt_all_gather(comm, values, values + 2, 3, TNT_FLOAT32, nullptr, nullptr); },
     "in and out overlap: out begins 8 bytes after in."},
    {"AllToAllOverlap", [] { return tnt_all_to_all(comm, values + 2, values, 3, TNT_FLOAT32, nullptr, nullptr); },
     "in and out overlap: out begins 8 bytes before in."},
    {"BroadcastOverlap", [] { return tnt_broadcast(comm, values, values + 1, 2, TNT_FLOAT32, 0, nullptr, nullptr); },
     "in and out overlap: out begins 4 bytes after in."},
    {"AllReduceOut", [] { return tnt_all_reduce(comm, values, nullptr, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "out is NULL"},
    {"AllReduceDtype", [] { return tnt_all_reduce(comm, values, results, 4, no_dtype, TNT_SUM, nullptr, nullptr); },
     "dtype 12"},
    {"AllReduceOp", [] { return tnt_all_reduce(comm, values, results, 4, TNT_FLOAT32, no_op, nullptr, nullptr); }, "op 11"},
    {"AllReduceCount", [] { return tnt_all_reduce(comm, values, results, too_many, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); },
     "count 2305843009213693951"},
    {"AllReduceStream", [] { return tnt_all_reduce(comm, values, results, 4, TNT_FLOAT32, TNT_SUM, stream, nullptr); },
     "stream", TNT_UNSUPPORTED},
    {"AllReduceScaledNan", [] { return tnt_all_reduce_scaled(comm, values, results, 4, TNT_FLOAT32, NAN, nullptr, nullptr); },
     "scale is nan, not a finite number"},
    {"AllReduceScaledOfIntegers",
     [] { return tnt_all_reduce_scaled(comm, values, results, 4, TNT_INT32, 0.5, nullptr, nullptr); },
     "int32 is not a floating-point type"},
    {"AllReduceBits", [] { return tnt_all_reduce(comm, values, results, 4, TNT_FLOAT32, TNT_BXOR, nullptr, nullptr); },
     "bxor needs an integer dtype, not float32"},
    {"ReduceScatterDtype", [] { return tnt_reduce_scatter(comm, values, results, 4, no_dtype, TNT_SUM, nullptr, nullptr); },
     "dtype 12"},
    {"ReduceScatterOp", [] { return tnt_reduce_scatter(comm, values, results, 4, TNT_FLOAT32, no_op, nullptr, nullptr); },
     "op 11"},
    {"AllGatherOut", [] { return tnt_all_gather(comm, values, nullptr, 4, TNT_FLOAT32, nullptr, nullptr); }, "out is NULL"},
    {"AllGatherCount", [] { return tnt_all_gather(comm, values, results, too_many, TNT_FLOAT32, nullptr, nullptr); }, "count"},
    {"BroadcastRoot", [] { return tnt_broadcast(comm, values, results, 4, TNT_FLOAT32, 1, nullptr, nullptr); }, "root 1"},
    {"BroadcastNegative", [] { return tnt_broadcast(comm, values, results, 4, TNT_FLOAT32, -1, nullptr, nullptr); }, "root -1"},
    {"BroadcastIn", [] { return tnt_broadcast(comm, nullptr, results, 4, TNT_FLOAT32, 0, nullptr, nullptr); }, "in is NULL"},
    {"AllToAllOut", [] { return tnt_all_to_all(comm, values, nullptr, 4, TNT_FLOAT32, nullptr, nullptr); }, "out is NULL"},
    {"AllToAllCount", [] { return tnt_all_to_all(comm, values, results, too_many, TNT_FLOAT32, nullptr, nullptr); }, "count"},
    {"ReduceRoot", [] { return tnt_reduce(comm, values, results, 4, TNT_FLOAT32, TNT_SUM, 1, nullptr, nullptr); }, "root 1"},
    {"ReduceOut", [] { return tnt_reduce(comm, values, nullptr, 4, TNT_FLOAT32, TNT_SUM, 0, nullptr, nullptr); },
     "out is NULL"},
    {"ReduceOp", [] { return tnt_reduce(comm, values, results, 4, TNT_FLOAT32, TNT_LOR, 0, nullptr, nullptr); },
     "lor needs an integer dtype"},
    {"GatherRoot", [] { return tnt_gather(comm, values, results, 4, TNT_FLOAT32, -1, nullptr, nullptr); }, "root -1"},
    {"GatherOverlap", [] { return tnt_gather(comm, values, values + 1, 2, TNT_FLOAT32, 0, nullptr, nullptr); },
     "in and out overlap"},
    {"ScatterRoot", [] { return tnt_scatter(comm, values, results, 4, TNT_FLOAT32, 1, nullptr, nullptr); }, "root 1"},
    {"ScatterIn", [] { return tnt_scatter(comm, nullptr, results, 4, TNT_FLOAT32, 0, nullptr, nullptr); }, "in is NULL"},
    {"ScatterOverlap", [] { return tnt_scatter(comm, values, values + 1, 2, TNT_FLOAT32, 0, nullptr, nullptr); },
     "in and out overlap"},
    {"AllGatherVCounts", [] { return tnt_all_gather_v(comm, values, results, nullptr, TNT_FLOAT32, nullptr, nullptr); },
     "counts is NULL"},
    {"AllGatherVCount", [] { return tnt_all_gather_v(comm, values, results, &too_many, TNT_FLOAT32, nullptr, nullptr); },
     "counts[0] 2305843009213693951 is too large"},
    {"ReduceScatterVOp",
     [] { return tnt_reduce_scatter_v(comm, values, results, &four, TNT_FLOAT32, no_op, nullptr, nullptr); }, "op 11"},
    {"ReduceScatterVOut",
     [] { return tnt_reduce_scatter_v(comm, values, nullptr, &four, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); }, "out is NULL"},
    {"AllToAllVRecv", [] { return tnt_all_to_all_v(comm, values, results, &four, nullptr, TNT_FLOAT32, nullptr, nullptr); },
     "recv_counts is NULL"},
    {"AllToAllVDtype", [] { return tnt_all_to_all_v(comm, values, results, &four, &four, no_dtype, nullptr, nullptr); },
     "dtype 12"},
    {"SendComm", [] { return tnt_send(nullptr, values, 4, TNT_FLOAT32, 1, nullptr, nullptr); }, "comm is NULL"},
    {"SendTo", [] { return tnt_send(comm, values, 4, TNT_FLOAT32, 1, nullptr, nullptr); },
     "to 1 is not one of the communicator's 1 ranks"},
    {"SendToItself", [] { return tnt_send(comm, values, 4, TNT_FLOAT32, 0, nullptr, nullptr); },
     "to 0 is the calling rank itself"},
    {"RecvFrom", [] { return tnt_recv(comm, results, 4, TNT_FLOAT32, -1, nullptr, nullptr); },
     "from -1 is not one of the communicator's 1 ranks"},
    {"BarrierStream", [] { return tnt_barrier(comm, stream, nullptr); }, "stream", TNT_UNSUPPORTED},
    {"WaitAnyIndexNull", [] { return tnt_work_wait_any(nullptr, 0, -1, nullptr); }, "index is NULL"},
    {"WaitAnyOfNone",
     [] {
       const tnt_work_t none[] = {nullptr, nullptr};
       std::size_t index = 0;
       const tnt_status_t status = tnt_work_wait_any(none, 2, -1, &index);
       EXPECT_EQ(index, 2U);
       return status;
     },
     "works has no operation to wait for"},
    {"WaitNull", [] { return tnt_work_wait(nullptr, -1); }, "work is NULL"},
    {"TestNull",
     [] {
       int finished;
       return tnt_work_test(nullptr, &finished);
     },
     "work is NULL"},
    {"TraceNull", [] { return tnt_trace_span(nullptr, "name", 0, 1); }, "track is NULL"},
    {"ProgressNegative", [] { return tnt_progress(1, -2.0); }, "samples is -2, not a number of samples"},
    {"TimelineNull", [] { return tnt_timeline_start(nullptr); }, "file is NULL"},
    {"TimelineUnnamed", [] { return tnt_timeline_start(""); }, "tnt_timeline_start: the file has no name"},
    {"TraceName", [] { return tnt_trace_span("track", nullptr, 0, 1); }, "name is NULL"},
    {"ReducerNull", [] { return tnt_reducer_create(comm, tensors, 2, nullptr, nullptr); }, "reducer is NULL"},
    {"ReducerComm",
     [] {
       tnt_reducer_t made;
       return tnt_reducer_create(nullptr, tensors, 2, nullptr, &made);
     },
     "comm is NULL"},
    {"ReducerTensors",
     [] {
       tnt_reducer_t made;
       return tnt_reducer_create(comm, nullptr, 2, nullptr, &made);
     },
     "tensors is NULL"},
    {"ReducerDtype",
     [] {
       const tnt_tensor_t tensor{"kernel", 4, no_dtype};
       tnt_reducer_t made;
       return tnt_reducer_create(comm, &tensor, 1, nullptr, &made);
     },
     "tensor 'kernel'"},
    {"ReducerTensorUnnamed",
     [] {
       return create_of({{"a", 4, TNT_FLOAT32}, {nullptr, 2, TNT_INT8}});
     },
     "tensors[1].name is NULL: give each tensor a name"},
    {"ReducerTensorTwice",
     [] {
       return create_of({{"a", 4, TNT_FLOAT32}, {"b", 2, TNT_INT8}, {"a", 1, TNT_INT8}});
     },
     "tensors[2] has the name 'a' of tensors[0]: give each tensor a name of its own"},
    {"ReducerCount",
     [] {
       return create_of({{"a", 1, TNT_FLOAT32}, {"b", SIZE_MAX / 4 + 2, TNT_FLOAT32}});
     },
     "tensors[1].count of 'b', 4611686018427387905, is too large"},
    {"ReducerCounts",
     [] {
       return create_of({{"a", SIZE_MAX / 20, TNT_INT8}, {"b", SIZE_MAX / 20, TNT_INT8}});
     },
     "tensors[1].count of 'b', 922337203685477580, is too large"},
    {"ReducerOptions",
     [] {
       const tnt_reducer_options_t options = reducer_options(4);
       tnt_reducer_t made;
       return tnt_reducer_create(comm, tensors, 2, &options, &made);
     },
     "options->size is 4"},
    {"WireDtype",
     [] {
       tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
       options.wire_dtype = TNT_INT8;
       tnt_reducer_t made;
       return tnt_reducer_create(comm, tensors, 2, &options, &made);
     },
     "options->wire_dtype is 4: use TNT_FLOAT16"},
    {"GradientOrder",
     [] {
       constexpr std::size_t gradient_order[] = {1, 1};
       tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
       options.gradient_order = gradient_order;
       tnt_reducer_t made;
       return tnt_reducer_create(comm, tensors, 2, &options, &made);
     },
     "gradient_order does not name each of the 2 tensors once"},
    {"Device", [] { return create_with([](auto& options) { options.device = -2; }); }, "options->device is -2"},
    {"DeviceMissing", [] { return create_with([](auto& options) { options.device = 0; }); }, "device", TNT_UNSUPPORTED},
    {"Determinism", [] { return create_with([](auto& options) { options.determinism = 3; }); },
     "options->determinism 3 is not a tnt_determinism_t"},
    {"Owners",
     [] {
       return create_with([](auto& options) {
         static constexpr int owners[] = {0, 1};
         options.owners = owners;
       });
     },
     "options->owners[1] is 1, the rank that needs the sum of"},
    {"Timing", [] { return create_with([](auto& options) { options.timing = -1; }); }, "options->timing is -1"},
    {"MaxCtas", [] { return create_with([](auto& options) { options.max_ctas = -1; }); }, "options->max_ctas is -1"},
    {"StatisticsOnHost", [] { return create_with([](auto& options) { options.statistics = 1; }); }, "options->statistics",
     TNT_UNSUPPORTED},
    {"TimingOnHost", [] { return create_with([](auto& options) { options.timing = 1; }); }, "options->timing", TNT_UNSUPPORTED},
    {"AccumulateOnHost", [] { return create_with([](auto& options) { options.accumulate = 1; }); }, "options->accumulate",
     TNT_UNSUPPORTED},
    {"BucketsOnHost", [] { return create_with([](auto& options) { options.gradients_in_buckets = 1; }); },
     "options->gradients_in_buckets: for gradients on a device only", TNT_UNSUPPORTED},
    {"ClipOnHost", [] { return create_with([](auto& options) { options.clip_norm = 1.0; }); }, "options->clip_norm",
     TNT_UNSUPPORTED},
    {"ClipBelowZero", [] { return create_with([](auto& options) { options.clip_norm = -1.0; }); },
     "options->clip_norm is -1: use the greatest norm"},
    {"AddScaledDtype", [] { return add_scaled(two, ones, 2, values, static_cast<tnt_dtype_t>(99)); },
     "dtype 99 is not a tnt_dtype_t"},
    {"AddScaledFloat8", [] { return add_scaled(two, ones, 2, values, TNT_FLOAT8_E4M3); },
     "float8_e4m3 is for the wire_dtype of a reducer only"},
    {"Float8OnHost", [] { return create_with([](auto& options) { options.wire_dtype = TNT_FLOAT8_E5M2; }); },
     "options->wire_dtype: float8_e5m2 is for gradients on a device only", TNT_UNSUPPORTED},
    {"AddScaledNothing", [] { return add_scaled(two, ones, 0, values, TNT_INT32); }, "n is 0: nothing can be added up"},
    {"AddScaledCount", [] { return tnt_add_scaled(two, ones, 2, values, SIZE_MAX, TNT_FLOAT32); },
     "count 18446744073709551615 is too large"},
    {"AddScaledTermsNull", [] { return add_scaled(nullptr, ones, 2, values, TNT_INT32); }, "terms is NULL"},
    {"AddScaledScalesNull", [] { return add_scaled(two, nullptr, 2, values, TNT_INT32); }, "scales is NULL"},
    {"AddScaledNull", [] { return add_scaled(one_missing, ones, 2, values, TNT_INT32); }, "terms[1] is NULL"},
    {"AddScaledOutNull", [] { return add_scaled(two, ones, 2, nullptr, TNT_INT32); }, "out is NULL"},
    {"AddScaledIntegers", [] { return add_scaled(two, halves, 2, values, TNT_INT32); },
     "int32 cannot be scaled by 0.5 when they are added: use 1 or 0"},
    {"AddScaledNotFinite", [] { return add_scaled(two, not_finite, 2, values, TNT_FLOAT32); },
     "scales[1] is nan, not a finite number"},
    {"StatisticsNotAsked",
     [] {
       const tnt_statistics_t* statistics;
       return tnt_reducer_statistics(reducer, &statistics);
     },
     "without options->statistics"},
    {"GradientBufferOnHost",
     [] {
       void* buffer;
       return tnt_reducer_gradient_buffer(reducer, 0, &buffer);
     },
     "host memory", TNT_UNSUPPORTED},
    {"GradientBufferTensor",
     [] {
       void* buffer;
       return tnt_reducer_gradient_buffer(reducer, 2, &buffer);
     },
     "tensor 2"},
    {"DeviceCountNull", [] { return tnt_device_count(nullptr, nullptr); }, "count is NULL"},
    {"DeviceCheckWithoutOne", [] { return tnt_device_check(-2); }, "device -2", TNT_UNSUPPORTED},
    {"HookNull", [] { return tnt_reducer_set_hook(nullptr, nullptr, nullptr); }, "reducer is NULL"},
    {"FusionThresholdNull", [] { return tnt_reducer_fusion_threshold(reducer, nullptr); }, "bytes is NULL"},
    {"BucketCountNull", [] { return tnt_reducer_bucket_count(reducer, nullptr); }, "n_buckets is NULL"},
    {"BucketCountOfNull",
     [] {
       std::size_t n;
       return tnt_reducer_bucket_count(nullptr, &n);
     },
     "reducer is NULL"},
    {"BucketSize",
     [] {
       tnt_bucket_t bucket{};
       return tnt_reducer_bucket(reducer, 0, &bucket);
     },
     "bucket->size is 0: start from TNT_BUCKET_INITIALIZER"},
    {"BucketIndex",
     [] {
       tnt_bucket_t bucket;
       return tnt_reducer_bucket(reducer, 2, &bucket);
     },
     "bucket 2"},
    {"BucketNull", [] { return tnt_reducer_bucket(reducer, 0, nullptr); }, "bucket is NULL"},
    {"ReadyReducer", [] { return tnt_reducer_ready(nullptr, 0, values, results, 1, nullptr); }, "reducer is NULL"},
    {"ReadyTensor", [] { return tnt_reducer_ready(reducer, 2, values, results, 1, nullptr); }, "tensor 2"},
    {"ReadyGradient", [] { return tnt_reducer_ready(reducer, 0, nullptr, results, 1, nullptr); }, "gradient of 'a' is NULL"},
    {"ReadyOther", [] { return tnt_reducer_ready(reducer, 1, nullptr, results, 1, nullptr); }, "gradient of 'b' is NULL"},
    {"ReadyScale", [] { return tnt_reducer_ready(reducer, 0, values, results, NAN, nullptr); }, "scale nan"},
    {"ReadyInfiniteScale", [] { return tnt_reducer_ready(reducer, 0, values, results, INFINITY, nullptr); }, "scale inf"},
    {"ReadyStream", [] { return tnt_reducer_ready(reducer, 0, values, results, 1, stream); }, "stream", TNT_INVALID_ARGUMENT},
    {"ReadyManyReducer", [] { return ready_two(nullptr, 1.0); }, "reducer is NULL"},
    {"ReadyManyTensors", [] { return tnt_reducer_ready_many(reducer, nullptr, &some, nullptr, nullptr, 1, nullptr); },
     "tensors is NULL"},
    {"ReadyManyGradients", [] { return tnt_reducer_ready_many(reducer, &first, nullptr, nullptr, nullptr, 1, nullptr); },
     "gradients is NULL"},
    {"ReadyManyScale", [] { return ready_two(reducer, NAN); }, "scales[1] is nan"},
    {"WaitBucketIndex", [] { return tnt_reducer_wait_bucket(reducer, 2, nullptr); }, "bucket 2"},
    {"WaitBucketEarly", [] { return tnt_reducer_wait_bucket(reducer, 0, nullptr); }, "waiting for bucket 0"},
    {"WaitBucketStream", [] { return tnt_reducer_wait_bucket(reducer, 0, stream); }, "stream", TNT_INVALID_ARGUMENT},
    {"FinishNull", [] { return tnt_reducer_finish(nullptr, nullptr); }, "reducer is NULL"},
    {"FinishEarly", [] { return tnt_reducer_finish(reducer, nullptr); }, "was not marked ready"},
    {"FinishStream", [] { return tnt_reducer_finish(reducer, stream); }, "stream", TNT_INVALID_ARGUMENT},
    {"TensorSteps",
     [] {
       std::uint64_t steps;
       return tnt_reducer_tensor_steps(reducer, 2, &steps);
     },
     "tensor 2"},
    {"TensorStepsNull", [] { return tnt_reducer_tensor_steps(reducer, 0, nullptr); }, "steps is NULL"},
    {"StatsNull", [] { return tnt_reducer_stats(reducer, nullptr); }, "stats is NULL"},
    {"StatsSize",
     [] {
       tnt_reducer_stats_t stats{};
       return tnt_reducer_stats(reducer, &stats);
     },
     "stats->size is 0"}};
INSTANTIATE_TEST_SUITE_P(All, ArgumentsTest, ::testing::ValuesIn(misuses),
                         [](const auto& info) { return std::string(info.param.name); });

class NullTest : public tnt::testing::Alone {};

TEST_F(NullTest, IsAcceptedByEveryDestroy) {
  EXPECT_EQ(tnt_comm_destroy(nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_destroy(nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_reducer_destroy(nullptr), TNT_SUCCESS);
}

TEST_F(NullTest, IsAcceptedForBuffersWithoutElements) {
  EXPECT_EQ(tnt_all_reduce(world, nullptr, nullptr, 0, TNT_INT8, TNT_SUM, nullptr, nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_reduce_scatter(world, nullptr, nullptr, 0, TNT_INT8, TNT_SUM, nullptr, nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_all_gather(world, nullptr, nullptr, 0, TNT_INT8, nullptr, nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_broadcast(world, nullptr, nullptr, 0, TNT_INT8, 0, nullptr, nullptr), TNT_SUCCESS);
}

}  // namespace
