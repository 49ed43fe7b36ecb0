// Text between Python and C where it may be any bytes, such as the names of files and the values of variables. Python keeps
// bytes that are no UTF-8 as surrogates (PEP 383), and nanobind's own conversion of strings refuses them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tnt::native {

namespace nb = nanobind;

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

}  // namespace tnt::native
