#include "common/dtype.hpp"

#include <array>

namespace tnt {
namespace {

struct Entry {
  const char* name;
  std::size_t size;
};
constexpr std::array<Entry, 12> entries{{{"float32", 4},
                                         {"float64", 8},
                                         {"float16", 2},
                                         {"bfloat16", 2},
                                         {"int8", 1},
                                         {"uint8", 1},
                                         {"int32", 4},
                                         {"int64", 8},
                                         {"uint32", 4},
                                         {"uint64", 8},
                                         {"float8_e4m3", 1},
                                         {"float8_e5m2", 1}}};
constexpr std::array<const char*, 11> op_names{"sum", "avg",  "min",  "max", "prod", "land",
                                               "lor", "lxor", "band", "bor", "bxor"};

}  // namespace

bool is_float8(tnt_dtype_t dtype) noexcept { return dtype == TNT_FLOAT8_E4M3 || dtype == TNT_FLOAT8_E5M2; }

bool is_dtype(tnt_dtype_t dtype) noexcept { return static_cast<std::size_t>(dtype) < entries.size() && !is_float8(dtype); }

std::size_t dtype_size(tnt_dtype_t dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < entries.size() ? entries[index].size : 0;
}

const char* dtype_name(tnt_dtype_t dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < entries.size() ? entries[index].name : "unknown dtype";
}

bool is_integer(tnt_dtype_t dtype) noexcept { return is_dtype(dtype) && dtype >= TNT_INT8; }

bool is_op(tnt_op_t op) noexcept { return static_cast<std::size_t>(op) < op_names.size(); }

bool needs_integers(tnt_op_t op) noexcept { return is_op(op) && op >= TNT_LAND; }

const char* op_name(tnt_op_t op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < op_names.size() ? op_names[index] : "unknown op";
}

}  // namespace tnt
