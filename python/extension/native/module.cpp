// tarantella._native: the C API for Python. Buffers are NumPy arrays. Blocking calls release the GIL and react to Ctrl-C.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "native/call.hpp"
#include "native/communicator.hpp"
#include "native/reducer.hpp"
#include "native/work.hpp"
#include "tarantella/tarantella.h"

using namespace tnt::native;
using namespace nb::literals;

namespace {

// The constants of tarantella.h, under the names that Python uses.
void add_constants(nb::module_& module) {
  nb::enum_<tnt_status_t> status(module, "Status", nb::is_arithmetic());
  for (const tnt_status_t code :
       {TNT_SUCCESS, TNT_INVALID_ARGUMENT, TNT_MISMATCH, TNT_TIMEOUT, TNT_PEER_LOST, TNT_ABORTED, TNT_SYSTEM, TNT_UNSUPPORTED})
    status.value(tnt_status_name(code), code);
  nb::enum_<tnt_dtype_t>(module, "Dtype", nb::is_arithmetic())
      .value("float32", TNT_FLOAT32)
      .value("float64", TNT_FLOAT64)
      .value("float16", TNT_FLOAT16)
      .value("bfloat16", TNT_BFLOAT16)
      .value("int8", TNT_INT8)
      .value("uint8", TNT_UINT8)
      .value("int32", TNT_INT32)
      .value("int64", TNT_INT64);
  nb::enum_<tnt_op_t>(module, "ReduceOp", nb::is_arithmetic())
      .value("sum", TNT_SUM)
      .value("avg", TNT_AVG)
      .value("min", TNT_MIN)
      .value("max", TNT_MAX)
      .value("prod", TNT_PROD);
  nb::enum_<tnt_determinism_t>(module, "Determinism", nb::is_arithmetic())
      .value("DEFAULT", TNT_DETERMINISM_DEFAULT)
      .value("RUN", TNT_DETERMINISM_RUN)
      .value("RANKS", TNT_DETERMINISM_RANKS);
  module.attr("WIRE_OWN") = TNT_WIRE_OWN;
  module.attr("WIRE_DEFAULT") = TNT_WIRE_DEFAULT;
  module.attr("DEVICE_HOST") = TNT_DEVICE_HOST;
}

}  // namespace

NB_MODULE(_native, module) {
  // Objects of a script may live until the interpreter ends, for example a model in a reference cycle. runtime.before_leaving
  // releases their resources, so a list of leaked objects does not help a user.
  nb::set_leak_warnings(false);
  add_constants(module);
  module.def("version", &tnt_version);
  module.def("init", [] { check_released([] { return tnt_init(nullptr); }); });
  module.def("finalize", [] {
    check_released([] { return tnt_finalize(); });
    Work::forget_finished();
  });
  module.def("device_count", [] {
    int count = 0;
    const char* why = "";
    check(tnt_device_count(&count, &why));
    return std::tuple<int, std::string>(count, why);
  });
  module.def("check_device", [](int device) { check_released([&] { return tnt_device_check(device); }); });
  module.def(
      "setting",
      [](const nb::str& name, const std::optional<nb::str>& value) {
        const char* canonical = "";
        const std::string text = value ? encoded(*value) : "";
        check(tnt_setting(encoded(name).c_str(), value ? text.c_str() : nullptr, &canonical));
        return decoded(canonical);
      },
      "name"_a, "value"_a = nb::none());
  module.def("clock_ns", &tnt_clock_ns);
  module.def(
      "progress", [](std::uint64_t step, double samples) { check(tnt_progress(step, samples)); }, "step"_a, "samples"_a);
  module.def("trace_span", [](const std::string& track, const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) {
    check(tnt_trace_span(track.c_str(), name.c_str(), begin_ns, end_ns));
  });
  module.def(
      "timeline_start", [](const nb::str& file) { check(tnt_timeline_start(encoded(file).c_str())); }, "file"_a);
  module.def("timeline_stop", [] { check(tnt_timeline_stop()); });

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
      .def("broadcast", blocking(&Communicator::broadcast), "data"_a, "dtype"_a, "root"_a)
      .def("barrier", blocking(&Communicator::barrier))
      .def("start_all_reduce", &Communicator::all_reduce, "input"_a, "output"_a, "dtype"_a, "op"_a, alive)
      .def("start_all_gather", &Communicator::all_gather, "input"_a, "output"_a, "dtype"_a, alive)
      .def("start_broadcast", &Communicator::broadcast, "data"_a, "dtype"_a, "root"_a, alive)
      .def("abort", &Communicator::abort, "reason"_a)
      .def("split", &Communicator::split, "color"_a, "key"_a)
      .def("create_group", &Communicator::create_group, "ranks"_a, "tag"_a = 0);

  nb::class_<Reducer>(module, "Reducer")
      .def(nb::init<const Communicator&, const std::vector<Reducer::Spec>&, const std::string&, const std::string&, double, int,
                    const std::vector<std::size_t>&, int, tnt_determinism_t, const std::vector<int>&>(),
           "comm"_a, "tensors"_a, "name"_a, "context"_a, "fusion_threshold"_a = -1.0, "wire_dtype"_a = TNT_WIRE_OWN,
           "gradient_order"_a = std::vector<std::size_t>{}, "device"_a = TNT_DEVICE_HOST,
           "determinism"_a = TNT_DETERMINISM_DEFAULT, "owners"_a = std::vector<int>{})
      .def("set_hook", &Reducer::set_hook, "hook"_a.none())
      .def("close", &Reducer::close)
      .def_prop_ro("address", &Reducer::address)
      .def_prop_ro("fusion_threshold", &Reducer::fusion_threshold)
      .def_prop_ro("buckets", &Reducer::buckets)
      .def_prop_ro("descriptions", &Reducer::descriptions)
      .def("tensor_steps", &Reducer::tensor_steps, "tensor"_a)
      .def("check", &Reducer::check_results)
      .def("stats", &Reducer::stats);
}
