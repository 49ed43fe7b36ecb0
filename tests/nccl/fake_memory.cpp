// The memory of the fake NCCL: allocated on the calling thread's simulated device, registered with communicators. It reports
// what NCCL does not find: ranks that register different sizes, or use registered memory in a collective in which others do
// not.
#include <algorithm>

#include "nccl/fake_state.hpp"
#include "support/simulated_stream.h"

using namespace fake;

namespace {

nccl::ncclResult_t register_with(Comm& comm, void* memory, std::size_t bytes, bool window, void** result) {
  static long made = 0;
  State& state = State::get();
  const auto known = state.memory.find(memory);
  if (known == state.memory.end() || known->second < bytes)
    state.misused("memory is registered that ncclMemAlloc has not made");
  comm.registrations.push_back({.number = ++made, .begin = static_cast<const char*>(memory), .bytes = bytes, .window = window});
  *result = reinterpret_cast<void*>(made);
  return nccl::ncclSuccess;
}

nccl::ncclResult_t deregister(const char* function, nccl::ncclComm_t handle, const void* number, bool window) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, function)) return nccl::ncclInvalidArgument;
  const auto erased = std::erase_if(comm_of(handle)->registrations, [&](const Registration& each) {
    return each.number == reinterpret_cast<long>(number) && each.window == window;
  });
  if (erased == 0) state.misused(std::string(function) + " of what is not registered");
  return nccl::ncclSuccess;
}

}  // namespace

FAKE_EXPORT nccl::ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  static const auto allocate = simulated<tnt_simulated_allocate_fn>("tnt_simulated_allocate");
  *memory = allocate(bytes);
  if (*memory == nullptr) return nccl::ncclUnhandledCudaError;
  State& state = State::get();
  const Lock lock(state.mutex);
  state.memory[*memory] = bytes;
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclMemFree(void* memory) {
  static const auto release = simulated<tnt_simulated_release_fn>("tnt_simulated_release");
  State& state = State::get();
  {
    const Lock lock(state.mutex);
    if (state.memory.erase(memory) == 0) state.misused("ncclMemFree of what ncclMemAlloc has not made");
    if (state.registered(memory)) state.misused("ncclMemFree of memory that is registered");
  }
  release(memory);
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommRegister(const nccl::ncclComm_t handle, void* memory, std::size_t bytes, void** result) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommRegister")) return nccl::ncclInvalidArgument;
  return register_with(*comm_of(handle), memory, bytes, false, result);
}

FAKE_EXPORT nccl::ncclResult_t ncclCommDeregister(const nccl::ncclComm_t handle, void* registration) {
  return deregister("ncclCommDeregister", handle, registration, false);
}

// Returns when all ranks have called it.
FAKE_EXPORT nccl::ncclResult_t ncclCommWindowRegister(nccl::ncclComm_t handle, void* memory, std::size_t bytes,
                                                      nccl::ncclWindow_t* window, int flags) {
  State& state = State::get();
  Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommWindowRegister")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  *window = nullptr;
  if (state.setting("no_windows", comm.rank) != 0) return nccl::ncclSuccess;
  if (!comm.blocking) state.misused("ncclCommWindowRegister of a communicator that does not block: it would be in progress");
  if (flags != nccl::symmetric_window) state.misused("a window that is not symmetric");
  if (state.setting("window_fails", comm.rank) != 0) return nccl::ncclSystemError;
  auto& wishes = comm.group->windows[++comm.windows];
  wishes[comm.rank] = bytes;
  if (wishes.begin()->second != bytes) state.misused("ranks register windows of different sizes");
  state.changed.notify_all();
  block(comm, lock, [&] { return wishes.size() == comm.group->members.size(); });
  if (comm.ended()) return nccl::ncclInternalError;
  return register_with(comm, memory, bytes, true, reinterpret_cast<void**>(window));
}

FAKE_EXPORT nccl::ncclResult_t ncclCommWindowDeregister(nccl::ncclComm_t handle, nccl::ncclWindow_t window) {
  return deregister("ncclCommWindowDeregister", handle, window, true);
}
