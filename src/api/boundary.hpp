// The C boundary: exceptions become a status and this thread's error message, and forks of a rank are refused.
//
// src/api implements tarantella.h: it checks arguments, converts errors and owns the process-wide state. Algorithms belong in
// the folders below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/forks.hpp"
#include "base/thread.hpp"
#include "common/error.hpp"

namespace tnt {

void set_last_error(const std::string& text) noexcept;

// Throws TNT_UNSUPPORTED if this process is a fork of a rank.
[[noreturn]] void fail_in_fork();
inline void refuse_forks() {
  if (is_fork_of_rank()) [[unlikely]]
    fail_in_fork();
}

// Runs body and converts its exceptions to a status. A body in which a thread can be cancelled defers that itself.
template <typename Body>
tnt_status_t with_status(Body&& body) noexcept {
  try {
    body();
    return TNT_SUCCESS;
  } catch (const Error& error) {
    set_last_error(error.what());
    return error.status();
  } catch (const std::bad_alloc&) {  // not by to_error, which allocates
    set_last_error("out of memory");
    return TNT_SYSTEM;
  } catch (const std::exception& error) {
    set_last_error(error.what());
    return TNT_SYSTEM;
  }
}

// For functions that forks of a rank may call: they need no job, or only read memory that a fork has a copy of.
template <typename Body>
tnt_status_t guarded_in_forks(Body&& body) noexcept {
  const CancellationDeferral deferral;
  return with_status(body);
}

// For all other functions.
template <typename Body>
tnt_status_t guarded(Body&& body) noexcept {
  const CancellationDeferral deferral;
  return with_status([&] {
    refuse_forks();
    body();
  });
}

// For collectives, which take less time than a deferral where they can: body defers cancellation where it has to.
template <typename Body>
tnt_status_t guarded_collective(Body&& body) noexcept {
  return with_status([&] {
    refuse_forks();
    body();
  });
}

// Throws TNT_INVALID_ARGUMENT if the pointer is NULL. what: the name of the parameter, such as "comm".
template <typename T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) fail(TNT_INVALID_ARGUMENT, "{} is NULL", what);
  return *pointer;
}

// Throws unless the caller's struct has all fields of the first version, which ends at `minimum`.
inline void check_struct_size(std::size_t size, std::size_t minimum, const char* what, const char* initializer) {
  if (size < minimum) fail(TNT_INVALID_ARGUMENT, "{}->size is {}: start from {}", what, size, initializer);
}

// A struct of the caller's, whose header may be older or newer: fields that it lacks stay as in defaults.
template <typename T>
T read_struct(const T& given, T defaults) {
  std::memcpy(&defaults, &given, std::min(given.size, sizeof(T)));
  return defaults;
}

// Writes the fields that the caller's struct has.
template <typename T>
void write_struct(T& to, T result) {
  result.size = to.size;
  std::memcpy(&to, &result, std::min(to.size, sizeof(T)));
}

}  // namespace tnt
