// Calls of the C API from Python: a failed one raises the exception class that tarantella.errors has for its status.
//
// This folder makes the module tarantella._native: the C API as functions and classes of Python, and nothing else. Code that
// can be written in Python belongs in python/tarantella.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "native/text.hpp"
#include "tarantella/tarantella.h"

namespace tnt::native {

namespace nb = nanobind;

inline void check(tnt_status_t status) {
  if (status == TNT_SUCCESS) return;
  const nb::str message = decoded(tnt_last_error());
  const nb::object error = nb::module_::import_("tarantella.errors").attr("from_status")(tnt_status_name(status), message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

// Makes a call that may wait for other ranks, without the GIL.
template <typename Call>
void check_released(Call&& call) {
  tnt_status_t status = TNT_SUCCESS;
  {
    const nb::gil_scoped_release released;
    status = std::forward<Call>(call)();
  }
  check(status);
}

}  // namespace tnt::native
