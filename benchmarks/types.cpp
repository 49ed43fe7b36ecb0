#include "benchmarks/types.hpp"

namespace tnt::bench {

const char* name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::all_to_all: return "all_to_all";
    case Collective::reduce: return "reduce";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    case Collective::all_gather_v: return "all_gather_v";
    case Collective::reduce_scatter_v: return "reduce_scatter_v";
    case Collective::all_to_all_v: return "all_to_all_v";
    case Collective::sendrecv: return "sendrecv";
    case Collective::barrier: return "barrier";
    case Collective::bucket: return "bucket";
    case Collective::overlap: return "overlap";
  }
  return "unknown";
}

const char* name(Cache cache) { return cache == Cache::hot ? "hot" : "rotate"; }

const char* name(tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_FLOAT32: return "float32";
    case TNT_FLOAT64: return "float64";
    case TNT_FLOAT16: return "float16";
    case TNT_BFLOAT16: return "bfloat16";
    case TNT_INT8: return "int8";
    case TNT_UINT8: return "uint8";
    case TNT_INT32: return "int32";
    case TNT_INT64: return "int64";
    case TNT_UINT32: return "uint32";
    case TNT_UINT64: return "uint64";
    default: break;
  }
  return "unknown";
}

const char* name(tnt_op_t op) {
  switch (op) {
    case TNT_SUM: return "sum";
    case TNT_AVG: return "avg";
    case TNT_MIN: return "min";
    case TNT_MAX: return "max";
    case TNT_PROD: return "prod";
    case TNT_LAND: return "land";
    case TNT_LOR: return "lor";
    case TNT_LXOR: return "lxor";
    case TNT_BAND: return "band";
    case TNT_BOR: return "bor";
    case TNT_BXOR: return "bxor";
  }
  return "unknown";
}

bool has_op(tnt_dtype_t dtype, tnt_op_t op) {
  return op < TNT_LAND || (dtype != TNT_FLOAT32 && dtype != TNT_FLOAT64 && dtype != TNT_FLOAT16 && dtype != TNT_BFLOAT16);
}

}  // namespace tnt::bench
