// A communicator: the methods start operations; `blocking` makes methods of them that wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "native/work.hpp"

namespace tnt::native {

class Communicator {
 public:
  Communicator(tnt_comm_t comm, bool owned) : comm_(comm), owned_(owned) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (owned_) tnt_comm_destroy(comm_);
  }

  static std::unique_ptr<Communicator> world() {
    tnt_comm_t comm = nullptr;
    check(tnt_comm_world(&comm));
    return std::make_unique<Communicator>(comm, false);
  }

  [[nodiscard]] tnt_comm_t get() const { return comm_; }
  [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(comm_); }

  [[nodiscard]] int rank() const { return number(tnt_comm_rank); }
  [[nodiscard]] int size() const { return number(tnt_comm_size); }
  [[nodiscard]] int local_rank() const { return number(tnt_comm_local_rank); }
  [[nodiscard]] int local_size() const { return number(tnt_comm_local_size); }
  [[nodiscard]] std::string transport() const {
    const char* name = nullptr;
    check(tnt_comm_transport(comm_, &name));
    return name;
  }

  [[nodiscard]] std::unique_ptr<Work> all_reduce(const In& in, const Out& out, tnt_dtype_t dtype, tnt_op_t op) const {
    same_size(in, 1, out, 1);
    return start(in, out, [&](tnt_work_t* work) {
      return tnt_all_reduce(comm_, in.data(), out.data(), in.size(), dtype, op, nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> all_gather(const In& in, const Out& out, tnt_dtype_t dtype) const {
    same_size(in, static_cast<std::size_t>(size()), out, 1);
    return start(in, out, [&](tnt_work_t* work) {
      return tnt_all_gather(comm_, in.data(), out.data(), in.size(), dtype, nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> broadcast(const Out& data, tnt_dtype_t dtype, int root) const {
    return start({}, data, [&](tnt_work_t* work) {
      return tnt_broadcast(comm_, data.data(), data.data(), data.size(), dtype, root, nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> barrier() const {
    return start({}, {}, [&](tnt_work_t* work) { return tnt_barrier(comm_, nullptr, work); });
  }
  void abort(const std::string& reason) const { check(tnt_comm_abort(comm_, reason.c_str())); }

  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) const {
    tnt_comm_t part = nullptr;
    check_released([&] { return tnt_comm_split(comm_, color, key, &part); });
    return part == nullptr ? nullptr : std::make_unique<Communicator>(part, true);
  }
  [[nodiscard]] std::unique_ptr<Communicator> create_group(const std::vector<int>& ranks, int tag) const {
    tnt_comm_t group = nullptr;
    check_released([&] { return tnt_comm_create_group(comm_, ranks.data(), ranks.size(), tag, &group); });
    return std::make_unique<Communicator>(group, true);
  }

 private:
  [[nodiscard]] int number(tnt_status_t (*get)(tnt_comm_t, int*)) const {
    int value = 0;
    check(get(comm_, &value));
    return value;
  }

  static void same_size(const In& in, std::size_t in_times, const Out& out, std::size_t out_times) {
    if (in.size() * in_times == out.size() * out_times) return;
    throw nb::value_error("the input and output arrays do not have sizes that fit each other");
  }

  template <typename Start>
  std::unique_ptr<Work> start(const In& in, const Out& out, Start&& begin) const {
    tnt_work_t handle = nullptr;
    check(begin(&handle));
    return std::make_unique<Work>(comm_, handle, in, out);
  }

  tnt_comm_t comm_;
  bool owned_;
};

// Runs the collective of the method and waits for it.
template <typename... Args>
auto blocking(std::unique_ptr<Work> (Communicator::*start)(Args...) const) {
  return [start](const Communicator& self, Args... args) { (self.*start)(args...)->wait(); };
}

}  // namespace tnt::native
