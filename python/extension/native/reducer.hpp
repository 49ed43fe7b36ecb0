// A reducer, and the hook in Python that sees its buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "native/communicator.hpp"

namespace tnt::native {

class Reducer {
 public:
  using Spec = std::tuple<std::string, std::size_t, tnt_dtype_t>;  // name, elements, dtype

  Reducer(const Communicator& comm, const std::vector<Spec>& specs, const std::string& name, const std::string& context,
          double fusion_threshold, int wire_dtype, const std::vector<std::size_t>& gradient_order, int device,
          tnt_determinism_t determinism, const std::vector<int>& owners) {
    std::vector<tnt_tensor_t> tensors;
    for (const auto& [tensor, count, dtype] : specs) tensors.push_back({tensor.c_str(), count, dtype});
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.name = name.c_str();
    options.context = context.c_str();
    options.wire_dtype = wire_dtype;
    options.device = device;
    options.timing = device == TNT_DEVICE_HOST ? 0 : timing_period;
    options.determinism = determinism;
    if (!gradient_order.empty() && gradient_order.size() != specs.size())
      throw nb::value_error("gradient_order does not name each tensor once");
    options.gradient_order = gradient_order.empty() ? nullptr : gradient_order.data();
    if (!owners.empty() && owners.size() != specs.size()) throw nb::value_error("owners does not name a rank for each tensor");
    options.owners = owners.empty() ? nullptr : owners.data();
    if (fusion_threshold >= 0) {
      constexpr double unlimited = 1e18;
      options.fusion_threshold = static_cast<std::size_t>(fusion_threshold < unlimited ? fusion_threshold : unlimited);
    }
    check_released([&] { return tnt_reducer_create(comm.get(), tensors.data(), tensors.size(), &options, &reducer_); });
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer() { close(); }

  void close() {
    {
      const nb::gil_scoped_release released;  // a running hook needs the GIL to end
      tnt_reducer_destroy(reducer_);
      reducer_ = nullptr;
    }
    hook_ = nb::none();
  }

  // hook(index, memory, dtype, tensors) returns None or an error message; None removes the hook.
  void set_hook(nb::object hook) {
    check(tnt_reducer_set_hook(reducer_, hook.is_none() ? nullptr : &call_hook, this));
    hook_ = std::move(hook);
  }

  [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(reducer_); }

  [[nodiscard]] std::size_t fusion_threshold() const {
    std::size_t bytes = 0;
    check(tnt_reducer_fusion_threshold(reducer_, &bytes));
    return bytes;
  }
  [[nodiscard]] std::vector<std::vector<std::size_t>> buckets() const {
    return from_each_bucket(
        [](const tnt_bucket_t& bucket) { return std::vector<std::size_t>(bucket.tensors, bucket.tensors + bucket.n_tensors); });
  }
  [[nodiscard]] std::vector<std::string> descriptions() const {
    return from_each_bucket([](const tnt_bucket_t& bucket) { return std::string(bucket.description); });
  }
  [[nodiscard]] std::uint64_t tensor_steps(std::size_t tensor) const {
    std::uint64_t steps = 0;
    check(tnt_reducer_tensor_steps(reducer_, tensor, &steps));
    return steps;
  }
  void check_results() const {
    check_released([&] { return tnt_reducer_check(reducer_); });
  }
  [[nodiscard]] nb::dict stats() const {
    tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
    check(tnt_reducer_stats(reducer_, &stats));
    nb::dict result;
    result["steps"] = stats.steps;
    result["bytes"] = stats.bytes;
    result["busy_seconds"] = stats.busy;
    result["exposed_seconds"] = stats.exposed;
    return result;
  }

 private:
  template <typename View>
  [[nodiscard]] std::vector<std::invoke_result_t<View, const tnt_bucket_t&>> from_each_bucket(View view) const {
    std::size_t n = 0;
    check(tnt_reducer_bucket_count(reducer_, &n));
    std::vector<std::invoke_result_t<View, const tnt_bucket_t&>> result;
    for (std::size_t i = 0; i < n; ++i) {
      tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
      check(tnt_reducer_bucket(reducer_, i, &bucket));
      result.push_back(view(bucket));
    }
    return result;
  }

  static int call_hook(tnt_packed_bucket_t* bucket, void* self) {
    const nb::gil_scoped_acquire acquired;
    try {
      const auto bytes = static_cast<Py_ssize_t>(bucket->count * tnt_dtype_size(bucket->dtype));
      const auto memory = nb::steal<nb::object>(PyMemoryView_FromMemory(static_cast<char*>(bucket->data), bytes, PyBUF_WRITE));
      if (!memory.is_valid()) throw nb::python_error();
      const std::vector<std::size_t> tensors(bucket->tensors, bucket->tensors + bucket->n_tensors);
      const nb::object wrong = static_cast<Reducer*>(self)->hook_(bucket->index, memory, bucket->dtype, tensors);
      if (wrong.is_none()) return 0;
      say(*bucket, nb::cast<std::string>(wrong));
    } catch (nb::python_error& error) {  // errors outside the hook: the interpreter ends, out of memory
      say(*bucket, std::string("an exception of type ") + nb::str(error.value().type().attr("__name__")).c_str());
      error.discard_as_unraisable("tarantella's bucket hook");
    } catch (const std::exception& error) {
      say(*bucket, error.what());
    }
    return 1;
  }
  static void say(tnt_packed_bucket_t& bucket, const std::string& reason) {
    bucket.reason[reason.copy(bucket.reason, sizeof(bucket.reason) - 1)] = '\0';
  }

  static constexpr int timing_period = 16;  // its events would be a third of what the host does for a bucket

  tnt_reducer_t reducer_ = nullptr;
  nb::object hook_ = nb::none();
};

}  // namespace tnt::native
