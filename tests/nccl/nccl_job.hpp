// Ranks that are threads, each with a simulated device and a communicator of the fake NCCL.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/communicator.hpp"
#include "support/array.hpp"
#include "support/simulated_device.hpp"
#include "support/thread_ranks.hpp"

namespace tnt::testing {

// The fake library, and its settings.
class FakeNccl {
 public:
  [[nodiscard]] static std::shared_ptr<const NcclLibrary> open();  // as of the version that was set last
  static void reset();
  static void set(const char* key, long value, int rank = -1);
  [[nodiscard]] static long count(const char* what);
  [[nodiscard]] static std::string misuse();
};

// Begins with a fake without failures. At the end all NCCL resources must be released, but those that a test expects to be
// left, and no rule broken.
class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeNccl::reset();
    left_ = FakeNccl::count("communicators");
  }
  void TearDown() override {
    EXPECT_EQ(FakeNccl::misuse(), "");
    EXPECT_EQ(FakeNccl::count("communicators"), left_);
  }
  long left_ = 0;
};

struct NcclRank {
  Communicator& host;
  SimulatedDevice& device;
  DeviceCommunicator& comm;
};
using NcclBody = std::function<void(NcclRank&)>;

[[nodiscard]] inline NcclOptions options(double timeout = default_timeout) { return {.timeout = timeout}; }

// By NCCL, through pinned memory, or hierarchical: by NCCL inside two nodes; ranks alternate between them.
enum class Backend { nccl, staged, hierarchical };
[[nodiscard]] std::string name_of(Backend backend);
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_communicator(Backend backend, Device& device, Communicator& host,
                                                                    const NcclOptions& options = testing::options());
void run_devices(Backend backend, int ranks, const NcclBody& body);

// Like run_threads and common_error of thread_ranks.hpp.
void run_nccl(int ranks, const NcclBody& body, const NcclOptions& options = testing::options());
[[nodiscard]] std::string common_nccl_error(int ranks, tnt_status_t status, const NcclBody& body,
                                            const NcclOptions& options = testing::options(0.4));

// The same for a hierarchical communicator; nodes: the node of each rank.
using Nodes = std::vector<int>;
void run_hierarchical(const Nodes& nodes, const NcclBody& body, const NcclOptions& options = testing::options());
[[nodiscard]] std::string common_hierarchical_error(const Nodes& nodes, tnt_status_t status, const NcclBody& body,
                                                    const NcclOptions& options = testing::options(0.4));

// An array on a device, for work on one stream.
class OnDevice {
 public:
  OnDevice(SimulatedDevice& device, StreamHandle stream, const Array& array);
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(buffer_.get()); }
  [[nodiscard]] Array read() const;  // when the stream has reached this point

 private:
  SimulatedDevice* device_;
  StreamHandle stream_;
  Array shape_;
  DeviceBuffer buffer_;
};

[[nodiscard]] inline OnDevice put(const NcclRank& rank, const Array& array) {
  return OnDevice(rank.device, rank.comm.stream(), array);
}

// One for each rank.
[[nodiscard]] std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count, unsigned seed);
[[nodiscard]] inline std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace tnt::testing
