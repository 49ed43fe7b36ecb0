#include "nccl/nccl_job.hpp"

#include <dlfcn.h>

#include "comm/staged/staged_communicator.hpp"
#include "nccl/fake_nccl.h"

namespace tnt::testing {
namespace {

template <typename Function>
Function* control(const char* name) {
  static void* handle = dlopen(TNT_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

Body with_nccl(const NcclBody& body, const NcclOptions& options, const std::shared_ptr<const NcclLibrary>& library) {
  return [=](Communicator& host) {
    SimulatedDevice device(host.rank(), {.seed = static_cast<unsigned>(host.rank() + 1), .progress = Progress::thread});
    const auto comm = make_nccl_communicator(device, host, options, library);
    NcclRank rank{host, device, *comm};
    body(rank);
  };
}

}  // namespace

std::shared_ptr<const NcclLibrary> FakeNccl::open() { return std::make_shared<const NcclLibrary>(TNT_FAKE_NCCL); }
void FakeNccl::reset() { control<tnt_fake_nccl_reset_t>("tnt_fake_nccl_reset")(); }
void FakeNccl::set(const char* key, long value, int rank) {
  control<tnt_fake_nccl_set_t>("tnt_fake_nccl_set")(key, rank, value);
}
long FakeNccl::count(const char* what) { return control<tnt_fake_nccl_count_t>("tnt_fake_nccl_count")(what); }
std::string FakeNccl::misuse() { return control<tnt_fake_nccl_misuse_t>("tnt_fake_nccl_misuse")(); }

void run_devices(Backend backend, int ranks, const NcclBody& body) {
  if (backend == Backend::nccl) return run_nccl(ranks, body);
  run_threads(ranks, [&](Communicator& host) {
    SimulatedDevice device(host.rank(), {.seed = static_cast<unsigned>(host.rank() + 1), .progress = Progress::thread});
    StagedCommunicator comm(device, host.split(0, 0, call()), patience);
    NcclRank rank{host, device, comm};
    body(rank);
  });
}

void run_nccl(int ranks, const NcclBody& body, const NcclOptions& options) {
  run_threads(ranks, with_nccl(body, options, FakeNccl::open()));
}

std::string common_nccl_error(int ranks, tnt_status_t status, const NcclBody& body, const NcclOptions& options) {
  return common_error(ranks, status, with_nccl(body, options, FakeNccl::open()));
}

OnDevice::OnDevice(SimulatedDevice& device, StreamHandle stream, const Array& array)
    : device_(&device),
      stream_(stream),
      shape_(array),
      buffer_(device, std::max<std::size_t>(array.bytes().size(), 1), stream) {
  device.synchronize(stream);
  if (!array.bytes().empty()) device.write(buffer_.get(), array.data(), array.bytes().size());
}

Array OnDevice::read() const {
  device_->synchronize(stream_);
  Array result = shape_;
  if (!result.bytes().empty()) device_->read(result.data(), buffer_.get(), result.bytes().size());
  return result;
}

}  // namespace tnt::testing
