// Gloo's all_reduce as a reference for tnt-bench: over TCP, which Gloo uses inside a node, too.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>

#include "benchmarks/reference_library.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::string error;

// Gloo throws exceptions, but functions of a plug-in must not.
template <typename Body>
const char* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& failure) {
    error = failure.what();
    return error.c_str();
  }
}

const char* init(const char* rendezvous, int rank, int ranks) {
  return guarded([&] {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    gloo::rendezvous::FileStore store(rendezvous);
    context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
  });
}

const char* version() { return "Gloo over TCP"; }

template <typename T>
gloo::AllreduceOptions::Func function_of(tnt_op_t op) {
  void (*function)(void*, const void*, const void*, std::size_t) = nullptr;
  switch (op) {
    case TNT_SUM: function = gloo::sum<T>; break;
    case TNT_MIN: function = gloo::min<T>; break;
    case TNT_MAX: function = gloo::max<T>; break;
    case TNT_PROD: function = gloo::product<T>; break;
    default: break;
  }
  return function;
}

template <typename T>
void all_reduce(const void* in, void* out, std::size_t count, tnt_op_t op) {
  gloo::AllreduceOptions options(context);
  if (in != out) options.setInput(static_cast<T*>(const_cast<void*>(in)), count);
  options.setOutput(static_cast<T*>(out), count);
  options.setReduceFunction(function_of<T>(op));
  gloo::allreduce(options);
}

void all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op) {
  switch (dtype) {
    case TNT_FLOAT32: return all_reduce<float>(in, out, count, op);
    case TNT_FLOAT64: return all_reduce<double>(in, out, count, op);
    case TNT_INT8: return all_reduce<std::int8_t>(in, out, count, op);
    case TNT_UINT8: return all_reduce<std::uint8_t>(in, out, count, op);
    case TNT_INT32: return all_reduce<std::int32_t>(in, out, count, op);
    case TNT_INT64: return all_reduce<std::int64_t>(in, out, count, op);
    case TNT_UINT32: return all_reduce<std::uint32_t>(in, out, count, op);
    case TNT_UINT64: return all_reduce<std::uint64_t>(in, out, count, op);
    default: return;
  }
}

bool supports(int collective, tnt_dtype_t dtype, tnt_op_t op) {
  const bool known = dtype != TNT_FLOAT16 && dtype != TNT_BFLOAT16;
  return collective == static_cast<int>(Collective::all_reduce) && known && op != TNT_AVG && op <= TNT_PROD;
}

const char* run(int /*collective*/, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                int /*root*/) {
  return guarded([&] { all_reduce(in, out, count, dtype, op); });
}

void finalize() { context.reset(); }

}  // namespace
}  // namespace tnt::bench

extern "C" __attribute__((visibility("default"))) void tnt_bench_reference_open(tnt::bench::ReferenceFunctions* functions) {
  using namespace tnt::bench;
  *functions = {init, version, supports, run, finalize};
}
