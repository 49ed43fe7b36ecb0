#include "comm/mpi/mpi_session.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace tnt {
namespace {

// MPI can be initialised once in a process. This state is needed when the process exits.
struct Process {
  std::atomic<bool> ours{false};
  std::atomic<bool> skip_finalize{false};
  std::atomic<int> pid{0};  // that uses MPI
};
Process process;

// mpirun ends all ranks when one exits without MPI_Finalize. The delay lets the other ranks report their errors.
constexpr std::chrono::milliseconds last_words{500};

void finalize() {
  if (!process.ours || process.pid != getpid()) return;
  if (process.skip_finalize) return std::this_thread::sleep_for(last_words);
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) (void)MPI_Finalize();
}

// By default Open MPI over TCP uses a rendezvous protocol for large messages and writes them in one piece. On a link that
// carries data both ways, its answers then wait behind data, and the link is idle half of the time. With eager sends, our
// messages (at most 512 KiB, a few in flight) fill the link. Values that the user has set are kept. Other MPI libraries ignore
// these variables.
void let_tcp_send_unasked() {
  for (const char* name : {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"}) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): MPI reads the environment, and is not initialised yet
    (void)setenv(name, "1048576", 0);
  }
}

const char* level_name(int level) {
  if (level == MPI_THREAD_MULTIPLE) return "MPI_THREAD_MULTIPLE";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  return "MPI_THREAD_SINGLE";
}

}  // namespace

MpiSession::MpiSession(bool of_program) {
  if (int unused = 0; !process.pid.compare_exchange_strong(unused, getpid()) && process.pid != getpid()) {
    fail(TNT_UNSUPPORTED, "process {} is a fork of process {}, which uses MPI: forks of it cannot join the job", getpid(),
         process.pid.load());
  }
  int finalized = 0;
  TNT_MPI(MPI_Finalized(&finalized));
  if (finalized != 0) fail(TNT_UNSUPPORTED, "MPI was finalized before tnt_init: call MPI_Finalize after tnt_finalize");
  int initialized = 0;
  TNT_MPI(MPI_Initialized(&initialized));
  if (initialized == 0 && of_program) {
    fail(TNT_INVALID_ARGUMENT, "options->mpi_comm: MPI is not initialised: call MPI_Init_thread before tnt_init");
  }
  if (initialized == 0) {
    let_tcp_send_unasked();
    TNT_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_));
    process.ours = true;
    (void)std::atexit(finalize);
  } else {
    TNT_MPI(MPI_Query_thread(&level_));
  }
  ours_ = process.ours;
  if (level_ < MPI_THREAD_SERIALIZED) {
    fail(TNT_UNSUPPORTED, "MPI was initialised with {}, but Tarantella reduces in threads of its own: {}", level_name(level_),
         ours_ ? "use an MPI library that was built with support for threads"
               : "call MPI_Init_thread with MPI_THREAD_MULTIPLE in place of MPI_Init (mpi4py does by default)");
  }
}

std::string MpiSession::describe() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  TNT_MPI(MPI_Get_library_version(text, &length));
  std::string version(text, static_cast<std::size_t>(length));
  version = version.substr(0, version.find_first_of("\n\0", 0, 2));
  Dl_info library{};
  const bool found = dladdr(reinterpret_cast<const void*>(&MPI_Init), &library) != 0 && library.dli_fname != nullptr;
  return fmt::format("{}, {}, {}, initialised by {}", version, found ? library.dli_fname : "an unknown library",
                     level_name(level_), ours_ ? "Tarantella" : "the program");
}

void MpiSession::skip_finalize() noexcept { process.skip_finalize = true; }

}  // namespace tnt
