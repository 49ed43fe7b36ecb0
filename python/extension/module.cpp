// tarantella._native: the C API for Python. Buffers are NumPy arrays. Blocking calls release the GIL and react to Ctrl-C. A
// failed call raises the exception class of tarantella.errors for its status.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tarantella/tarantella.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using In = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;

void check(tnt_status_t status) {
  if (status == TNT_SUCCESS) return;
  const std::string message = tnt_last_error();
  const nb::object error = nb::module_::import_("tarantella.errors").attr("from_status")(tnt_status_name(status), message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

// A started operation, which uses its buffers until it has ended. A Work that is dropped earlier puts them on a list of
// abandoned operations, which later calls clean up.
class Work {
 public:
  Work(tnt_comm_t comm, tnt_work_t handle, In in, Out out)
      : comm_(comm), operation_{Handle(handle), std::move(in), std::move(out)} {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    forget_finished();
    if (!finished_ && operation_.runs()) abandoned().push_back(std::move(operation_));
  }

  [[nodiscard]] bool test() {
    if (!finished_) finished_ = !operation_.runs();
    return finished_;
  }

  // Waits in short intervals, so that signals are handled. A caller that continues must not leave its buffers to a running
  // operation, so an interrupt aborts the job and with it the operation.
  void wait() {
    tnt_status_t status = TNT_SUCCESS;
    int finished = 0;
    while (finished == 0) {
      {
        const nb::gil_scoped_release released;
        status = tnt_work_wait(operation_.handle.get(), 0.1);
        if (status != TNT_SUCCESS)
          status = tnt_work_test(operation_.handle.get(), &finished);
        else
          finished = 1;
      }
      if (finished == 0 && PyErr_CheckSignals() != 0) {
        tnt_comm_abort(comm_, "interrupted");
        {
          const nb::gil_scoped_release released;
          tnt_work_wait(operation_.handle.get(), -1.0);
        }
        finished_ = true;
        throw nb::python_error();
      }
    }
    finished_ = true;
    check(status);
  }

  static void forget_finished() {
    std::erase_if(abandoned(), [](const Operation& operation) { return !operation.runs(); });
  }

 private:
  struct Destroy {
    void operator()(tnt_work_t work) const { tnt_work_destroy(work); }
  };
  using Handle = std::unique_ptr<tnt_work, Destroy>;
  struct Operation {
    Handle handle;
    In in;
    Out out;
    [[nodiscard]] bool runs() const {
      int finished = 1;
      tnt_work_test(handle.get(), &finished);
      return finished == 0;
    }
  };

  static std::vector<Operation>& abandoned() {
    static auto* const list = new std::vector<Operation>;  // never destroyed: an operation may still run at exit
    return *list;
  }

  tnt_comm_t comm_;
  Operation operation_;
  bool finished_ = false;
};

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

  [[nodiscard]] std::unique_ptr<Work> all_reduce(const In& in, const Out& out, int dtype, int op) const {
    same_size(in, 1, out, 1);
    return start(in, out, [&](tnt_work_t* work) {
      return tnt_all_reduce(comm_, in.data(), out.data(), in.size(), tnt_dtype_t(dtype), tnt_op_t(op), nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> all_gather(const In& in, const Out& out, int dtype) const {
    same_size(in, static_cast<std::size_t>(size()), out, 1);
    return start(in, out, [&](tnt_work_t* work) {
      return tnt_all_gather(comm_, in.data(), out.data(), in.size(), tnt_dtype_t(dtype), nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> reduce_scatter(const In& in, const Out& out, int dtype, int op) const {
    same_size(in, 1, out, static_cast<std::size_t>(size()));
    return start(in, out, [&](tnt_work_t* work) {
      return tnt_reduce_scatter(comm_, in.data(), out.data(), out.size(), tnt_dtype_t(dtype), tnt_op_t(op), nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> broadcast(const Out& data, int dtype, int root) const {
    return start({}, data, [&](tnt_work_t* work) {
      return tnt_broadcast(comm_, data.data(), data.data(), data.size(), tnt_dtype_t(dtype), root, nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> send(const In& in, int dtype, int to) const {
    return start(
        in, {}, [&](tnt_work_t* work) { return tnt_send(comm_, in.data(), in.size(), tnt_dtype_t(dtype), to, nullptr, work); });
  }
  [[nodiscard]] std::unique_ptr<Work> recv(const Out& out, int dtype, int from) const {
    return start({}, out, [&](tnt_work_t* work) {
      return tnt_recv(comm_, out.data(), out.size(), tnt_dtype_t(dtype), from, nullptr, work);
    });
  }
  [[nodiscard]] std::unique_ptr<Work> barrier() const {
    return start({}, {}, [&](tnt_work_t* work) { return tnt_barrier(comm_, nullptr, work); });
  }
  void abort(const std::string& reason) const { check(tnt_comm_abort(comm_, reason.c_str())); }

  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) const {
    tnt_comm_t part = nullptr;
    tnt_status_t status = TNT_SUCCESS;
    {
      const nb::gil_scoped_release released;
      status = tnt_comm_split(comm_, color, key, &part);
    }
    check(status);
    return part == nullptr ? nullptr : std::make_unique<Communicator>(part, true);
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

class Reducer {
 public:
  using Spec = std::tuple<std::string, std::size_t, int>;  // name, elements, dtype

  Reducer(const Communicator& comm, const std::vector<Spec>& specs, const std::string& name, const std::string& context,
          double fusion_threshold, int wire_dtype, const std::vector<std::size_t>& gradient_order, int device,
          int determinism) {
    std::vector<tnt_tensor_t> tensors;
    for (const auto& [tensor, count, dtype] : specs) tensors.push_back({tensor.c_str(), count, tnt_dtype_t(dtype)});
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.name = name.c_str();
    options.context = context.c_str();
    options.wire_dtype = wire_dtype;
    options.device = device;
    options.determinism = determinism;
    if (!gradient_order.empty() && gradient_order.size() != specs.size())
      throw nb::value_error("gradient_order does not name each tensor once");
    options.gradient_order = gradient_order.empty() ? nullptr : gradient_order.data();
    if (fusion_threshold >= 0) {
      constexpr double unlimited = 1e18;
      options.fusion_threshold = static_cast<std::size_t>(fusion_threshold < unlimited ? fusion_threshold : unlimited);
    }
    tnt_status_t status = TNT_SUCCESS;
    {
      const nb::gil_scoped_release released;
      status = tnt_reducer_create(comm.get(), tensors.data(), tensors.size(), &options, &reducer_);
    }
    check(status);
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
    return of_each_bucket(
        [](const tnt_bucket_t& bucket) { return std::vector<std::size_t>(bucket.tensors, bucket.tensors + bucket.n_tensors); });
  }
  [[nodiscard]] std::vector<std::string> descriptions() const {
    return of_each_bucket([](const tnt_bucket_t& bucket) { return std::string(bucket.description); });
  }
  [[nodiscard]] std::uint64_t tensor_steps(std::size_t tensor) const {
    std::uint64_t steps = 0;
    check(tnt_reducer_tensor_steps(reducer_, tensor, &steps));
    return steps;
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
  [[nodiscard]] std::vector<std::invoke_result_t<View, const tnt_bucket_t&>> of_each_bucket(View view) const {
    std::size_t n = 0;
    check(tnt_reducer_bucket_count(reducer_, &n));
    std::vector<std::invoke_result_t<View, const tnt_bucket_t&>> result;
    for (std::size_t i = 0; i < n; ++i) {
      tnt_bucket_t bucket;
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
      const nb::object wrong =
          static_cast<Reducer*>(self)->hook_(bucket->index, memory, static_cast<int>(bucket->dtype), tensors);
      if (wrong.is_none()) return 0;
      say(*bucket, nb::cast<std::string>(wrong));
    } catch (nb::python_error& error) {  // errors outside the hook: the interpreter ends, out of memory
      say(*bucket, std::string("an exception of type ") + Py_TYPE(error.value().ptr())->tp_name);
      error.discard_as_unraisable("tarantella's bucket hook");
    } catch (const std::exception& error) {
      say(*bucket, error.what());
    }
    return 1;
  }
  static void say(tnt_packed_bucket_t& bucket, const std::string& reason) {
    bucket.reason[reason.copy(bucket.reason, sizeof(bucket.reason) - 1)] = '\0';
  }

  tnt_reducer_t reducer_ = nullptr;
  nb::object hook_ = nb::none();
};

void init() {
  tnt_status_t status = TNT_SUCCESS;
  {
    const nb::gil_scoped_release released;
    status = tnt_init(nullptr);
  }
  check(status);
}

}  // namespace

NB_MODULE(_native, module) {
  // Objects of a script may live until the interpreter ends, for example a model in a reference cycle. runtime.before_leaving
  // releases their resources, so a list of leaked objects does not help a user.
  nb::set_leak_warnings(false);
  module.def("version", &tnt_version);
  module.def("init", &init);
  module.def("finalize", [] {
    check(tnt_finalize());
    Work::forget_finished();
  });
  module.def("device_count", [] {
    int count = 0;
    const char* why = "";
    check(tnt_device_count(&count, &why));
    return std::tuple<int, std::string>(count, why);
  });
  module.def("clock_ns", &tnt_clock_ns);
  module.def("trace_span", [](const std::string& track, const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) {
    check(tnt_trace_span(track.c_str(), name.c_str(), begin_ns, end_ns));
  });

  nb::class_<Work>(module, "Work").def("wait", &Work::wait).def("test", &Work::test);

  const nb::keep_alive<0, 1> alive;  // a communicator must outlive its works
  nb::class_<Communicator>(module, "Communicator")
      .def_static("world", &Communicator::world)
      .def_prop_ro("address", &Communicator::address)
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("local_rank", &Communicator::local_rank)
      .def_prop_ro("local_size", &Communicator::local_size)
      .def_prop_ro("transport", &Communicator::transport)
      .def("all_reduce", blocking(&Communicator::all_reduce), "input"_a, "output"_a, "dtype"_a, "op"_a)
      .def("all_gather", blocking(&Communicator::all_gather), "input"_a, "output"_a, "dtype"_a)
      .def("reduce_scatter", blocking(&Communicator::reduce_scatter), "input"_a, "output"_a, "dtype"_a, "op"_a)
      .def("broadcast", blocking(&Communicator::broadcast), "data"_a, "dtype"_a, "root"_a)
      .def("barrier", blocking(&Communicator::barrier))
      .def("start_all_reduce", &Communicator::all_reduce, "input"_a, "output"_a, "dtype"_a, "op"_a, alive)
      .def("start_all_gather", &Communicator::all_gather, "input"_a, "output"_a, "dtype"_a, alive)
      .def("start_broadcast", &Communicator::broadcast, "data"_a, "dtype"_a, "root"_a, alive)
      .def("start_send", &Communicator::send, "data"_a, "dtype"_a, "to"_a, alive)
      .def("start_recv", &Communicator::recv, "data"_a, "dtype"_a, "source"_a, alive)
      .def("abort", &Communicator::abort, "reason"_a)
      .def("split", &Communicator::split, "color"_a, "key"_a);

  nb::class_<Reducer>(module, "Reducer")
      .def(nb::init<const Communicator&, const std::vector<Reducer::Spec>&, const std::string&, const std::string&, double, int,
                    const std::vector<std::size_t>&, int, int>(),
           "comm"_a, "tensors"_a, "name"_a, "context"_a, "fusion_threshold"_a = -1.0, "wire_dtype"_a = TNT_WIRE_OWN,
           "gradient_order"_a = std::vector<std::size_t>{}, "device"_a = TNT_DEVICE_HOST,
           "determinism"_a = int{TNT_DETERMINISM_DEFAULT})
      .def("set_hook", &Reducer::set_hook, "hook"_a.none())
      .def("close", &Reducer::close)
      .def_prop_ro("address", &Reducer::address)
      .def_prop_ro("fusion_threshold", &Reducer::fusion_threshold)
      .def_prop_ro("buckets", &Reducer::buckets)
      .def_prop_ro("descriptions", &Reducer::descriptions)
      .def("tensor_steps", &Reducer::tensor_steps, "tensor"_a)
      .def("stats", &Reducer::stats);
}
