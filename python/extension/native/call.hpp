// Calls of the C API from Python: a failed one raises the exception class that tarantella.errors has for its status.
//
// This folder makes the module tarantella._native: the C API as functions and classes of Python, and nothing else. Code that
// can be written in Python belongs in python/tarantella.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "tarantella/tarantella.h"

namespace tnt::native {

namespace nb = nanobind;

// Text between Python and C where it may be any bytes, such as the names of files and the values of variables. Python keeps
// bytes that are no UTF-8 as surrogates (PEP 383), and nanobind's own conversion of strings refuses them.
inline nb::str decoded(const std::string& bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(text);
}

inline std::string encoded(const nb::str& text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape");
  if (bytes == nullptr) throw nb::python_error();
  const auto owner = nb::steal<nb::bytes>(bytes);
  return {owner.c_str(), owner.size()};
}

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
