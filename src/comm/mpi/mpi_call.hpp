// Checks MPI calls: an MPI error becomes an exception with MPI's message.
#pragma once

#include <mpi.h>

#include <string>

#include "common/error.hpp"

namespace tnt {

[[nodiscard]] inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace tnt

// TNT_MPI(MPI_Comm_rank(comm, &rank)): throws TNT_SYSTEM that names the function.
#define TNT_MPI(call)                                                                          \
  do {                                                                                         \
    const int tnt_mpi_code = (call);                                                           \
    if (tnt_mpi_code != MPI_SUCCESS) {                                                         \
      const std::string tnt_mpi_call = #call;                                                  \
      ::tnt::fail(TNT_SYSTEM, "{} failed: {}", tnt_mpi_call.substr(0, tnt_mpi_call.find('(')), \
                  ::tnt::mpi_error_text(tnt_mpi_code));                                        \
    }                                                                                          \
  } while (false)
