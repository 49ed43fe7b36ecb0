#include "support/array.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "support/half_reference.hpp"

namespace tnt::testing {
namespace {

std::size_t bytes_of(tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_INT8:
    case TNT_UINT8: return 1;
    case TNT_FLOAT16:
    case TNT_BFLOAT16: return 2;
    case TNT_FLOAT32:
    case TNT_INT32:
    case TNT_UINT32: return 4;
    case TNT_FLOAT64:
    case TNT_INT64:
    case TNT_UINT64: return 8;
    default: break;
  }
  throw std::logic_error("no dtype");
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

double combined(double a, double b, tnt_op_t op) {
  switch (op) {
    case TNT_SUM:
    case TNT_AVG: return a + b;
    case TNT_MIN: return std::min(a, b);
    case TNT_MAX: return std::max(a, b);
    case TNT_PROD: return a * b;
    case TNT_LAND: return a != 0 && b != 0 ? 1 : 0;
    case TNT_LOR: return a != 0 || b != 0 ? 1 : 0;
    case TNT_LXOR: return (a != 0) != (b != 0) ? 1 : 0;
    case TNT_BAND: return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    case TNT_BOR: return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    case TNT_BXOR: return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
  }
  throw std::logic_error("no op");
}

}  // namespace

Array::Array(tnt_dtype_t dtype, std::size_t count) : dtype_(dtype), count_(count), bytes_(count * bytes_of(dtype)) {}

double Array::get(std::size_t index) const {
  const std::byte* at = bytes_.data() + index * bytes_of(dtype_);
  switch (dtype_) {
    case TNT_FLOAT32: return load<float>(at);
    case TNT_FLOAT64: return load<double>(at);
    case TNT_FLOAT16: return HalfFormat::float16().decode(load<std::uint16_t>(at));
    case TNT_BFLOAT16: return HalfFormat::bfloat16().decode(load<std::uint16_t>(at));
    case TNT_INT8: return load<std::int8_t>(at);
    case TNT_UINT8: return load<std::uint8_t>(at);
    case TNT_INT32: return load<std::int32_t>(at);
    case TNT_INT64: return static_cast<double>(load<std::int64_t>(at));
    case TNT_UINT32: return load<std::uint32_t>(at);
    case TNT_UINT64: return static_cast<double>(load<std::uint64_t>(at));
    default: break;
  }
  throw std::logic_error("no dtype");
}

void Array::set(std::size_t index, double value) {
  std::byte* at = bytes_.data() + index * bytes_of(dtype_);
  switch (dtype_) {
    case TNT_FLOAT32: return store(at, static_cast<float>(value));
    case TNT_FLOAT64: return store(at, value);
    case TNT_FLOAT16: return store(at, HalfFormat::float16().encode(value));
    case TNT_BFLOAT16: return store(at, HalfFormat::bfloat16().encode(value));
    case TNT_INT8: return store(at, static_cast<std::int8_t>(value));
    case TNT_UINT8: return store(at, static_cast<std::uint8_t>(value));
    case TNT_INT32: return store(at, static_cast<std::int32_t>(value));
    case TNT_INT64: return store(at, static_cast<std::int64_t>(value));
    case TNT_UINT32: return store(at, static_cast<std::uint32_t>(value));
    case TNT_UINT64: return store(at, static_cast<std::uint64_t>(value));
    default: break;
  }
  throw std::logic_error("no dtype");
}

Array Array::part(std::size_t begin, std::size_t count) const {
  Array result(dtype_, count);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin * bytes_of(dtype_)), result.bytes_.size(),
              result.bytes_.begin());
  return result;
}

void Array::place(std::size_t begin, const Array& other) {
  std::copy(other.bytes_.begin(), other.bytes_.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin * bytes_of(dtype_)));
}

Array repeated(tnt_dtype_t dtype, std::size_t count, const std::function<double(std::size_t)>& value) {
  Array result(dtype, count);
  const std::size_t computed = std::min(period, count);
  for (std::size_t i = 0; i < computed; ++i) result.set(i, value(i));
  for (std::size_t i = computed; i < count; i += computed) result.place(i, result.part(0, std::min(computed, count - i)));
  return result;
}

Array exact_values(tnt_dtype_t dtype, std::size_t count, unsigned seed) {
  const int low = dtype == TNT_UINT8 || dtype == TNT_UINT32 || dtype == TNT_UINT64 ? 0 : -1;
  const int high = seed % 2 == 0 ? 2 : 1;  // products of 8 ranks fit into 8 bits
  const auto range = static_cast<std::size_t>(high - low + 1);
  return repeated(dtype, count, [&](std::size_t i) {
    const std::size_t mixed = (i + 1) * 2654435761U + seed * 40503U;
    return low + static_cast<int>(mixed / 64 % range);
  });
}

Array reduced(std::span<const Array> arrays, tnt_op_t op) {
  return repeated(arrays[0].dtype(), arrays[0].count(), [&](std::size_t i) {
    double value = arrays[0].get(i);
    if (arrays.size() == 1 && (op == TNT_LAND || op == TNT_LOR || op == TNT_LXOR)) value = value != 0 ? 1 : 0;
    for (const Array& next : arrays.subspan(1)) value = combined(value, next.get(i), op);
    return op == TNT_AVG ? value / static_cast<double>(arrays.size()) : value;  // stored as an integer, it is cut
  });
}

}  // namespace tnt::testing
