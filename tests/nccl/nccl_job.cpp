#include "nccl/nccl_job.hpp"

#include <dlfcn.h>

#include "comm/hierarchical/device_communicator.hpp"
#include "comm/staged/staged_communicator.hpp"
#include "nccl/fake_nccl.h"

namespace tnt::testing {
namespace {

template <typename Function>
Function* control(const char* name) {
  static void* handle = dlopen(TNT_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

// make(device, host) makes the communicator.
template <typename Make>
Body with(const NcclBody& body, const Make& make) {
  return [=](Communicator& host) {
    SimulatedDevice device(host.rank(), {.seed = static_cast<unsigned>(host.rank() + 1), .progress = Progress::thread});
    const std::unique_ptr<DeviceCommunicator> comm = make(device, host);
    NcclRank rank{host, device, *comm};
    body(rank);
  };
}

Body with_backend(const NcclBody& body, Backend backend, const NcclOptions& options = testing::options()) {
  return with(body, [=](Device& device, Communicator& host) { return make_communicator(backend, device, host, options); });
}

Body with_nodes(const NcclBody& body, const Nodes& nodes, const NcclOptions& options) {
  return with(body, [=](Device& device, Communicator& host) {
    const std::string node = std::to_string(nodes[at(host.rank())]);
    return make_hierarchical_device_communicator(device, host, options, node, FakeNccl::open());
  });
}

}  // namespace

std::shared_ptr<const NcclLibrary> FakeNccl::open() { return std::make_shared<const NcclLibrary>(TNT_FAKE_NCCL); }
void FakeNccl::reset() { control<tnt_fake_nccl_reset_t>("tnt_fake_nccl_reset")(); }
void FakeNccl::set(const char* key, long value, int rank) {
  control<tnt_fake_nccl_set_t>("tnt_fake_nccl_set")(key, rank, value);
}
long FakeNccl::count(const char* what) { return control<tnt_fake_nccl_count_t>("tnt_fake_nccl_count")(what); }
std::string FakeNccl::misuse() { return control<tnt_fake_nccl_misuse_t>("tnt_fake_nccl_misuse")(); }

std::string name_of(Backend backend) {
  switch (backend) {
    case Backend::nccl: return "nccl";
    case Backend::staged: return "staged";
    case Backend::hierarchical: return "hierarchical";
  }
  return "";
}

std::unique_ptr<DeviceCommunicator> make_communicator(Backend backend, Device& device, Communicator& host,
                                                      const NcclOptions& options) {
  switch (backend) {
    case Backend::nccl: return make_nccl_communicator(device, host, options, FakeNccl::open());
    case Backend::staged: return std::make_unique<StagedCommunicator>(device, host.split(0, 0, call()), options.timeout);
    case Backend::hierarchical: break;
  }
  return make_hierarchical_device_communicator(device, host, options, host.rank() % 2 == 0 ? "even" : "odd", FakeNccl::open());
}

void run_devices(Backend backend, int ranks, const NcclBody& body) { run_threads(ranks, with_backend(body, backend)); }

void run_nccl(int ranks, const NcclBody& body, const NcclOptions& options) {
  run_threads(ranks, with_backend(body, Backend::nccl, options));
}

std::string common_nccl_error(int ranks, tnt_status_t status, const NcclBody& body, const NcclOptions& options) {
  return common_error(ranks, status, with_backend(body, Backend::nccl, options));
}

void run_hierarchical(const Nodes& nodes, const NcclBody& body, const NcclOptions& options) {
  run_threads(static_cast<int>(nodes.size()), with_nodes(body, nodes, options));
}

std::string common_hierarchical_error(const Nodes& nodes, tnt_status_t status, const NcclBody& body,
                                      const NcclOptions& options) {
  return common_error(static_cast<int>(nodes.size()), status, with_nodes(body, nodes, options));
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

std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count, unsigned seed) {
  std::vector<Array> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(exact_values(dtype, count, seed + static_cast<unsigned>(rank)));
  return result;
}

}  // namespace tnt::testing
