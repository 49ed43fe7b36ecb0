// The MPI environment of this process. The library initialises MPI if nobody else has, and then also finalizes it at exit.
#pragma once

#include <mpi.h>

#include <string>

#include "common/error.hpp"

namespace tnt {

class MpiSession {
 public:
  // Initialises MPI, or checks how the program has. Throws TNT_UNSUPPORTED if the library's threads may not call MPI.
  // of_program: the program must have initialised MPI, else TNT_INVALID_ARGUMENT.
  explicit MpiSession(bool of_program);

  // MPI_THREAD_SERIALIZED: one thread at a time
  [[nodiscard]] bool serialized() const noexcept { return level_ != MPI_THREAD_MULTIPLE; }
  [[nodiscard]] bool ours() const noexcept { return ours_; }  // whether the library has initialised MPI
  [[nodiscard]] std::string describe() const;  // "Open MPI v4.1.4, FILE, MPI_THREAD_MULTIPLE, initialised by Tarantella"

  // Makes the process exit without MPI_Finalize, which would wait for ranks that may never come.
  static void skip_finalize() noexcept;

 private:
  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
};

// MPI's message.
[[nodiscard]] inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace tnt

// Checks a call of MPI. TNT_MPI(MPI_Comm_rank(comm, &rank)) throws TNT_SYSTEM that names the function.
#define TNT_MPI(call)                                                                          \
  do {                                                                                         \
    const int tnt_mpi_code = (call);                                                           \
    if (tnt_mpi_code != MPI_SUCCESS) {                                                         \
      const std::string tnt_mpi_call = #call;                                                  \
      ::tnt::fail(TNT_SYSTEM, "{} failed: {}", tnt_mpi_call.substr(0, tnt_mpi_call.find('(')), \
                  ::tnt::mpi_error_text(tnt_mpi_code));                                        \
    }                                                                                          \
  } while (false)
