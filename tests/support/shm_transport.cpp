// Shared memory. The worlds of all ranks map one segment at the same addresses, so that sanitizers see conflicts between ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file_descriptor.hpp"
#include "comm/shm/shm_communicator.hpp"
#include "support/transport.hpp"

namespace tnt::testing {
namespace {

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(int ranks, std::vector<std::uint32_t> domains = {}) : ranks_(ranks), domains_(std::move(domains)) {
    FileDescriptor segment = Segment::create();
    descriptor_ = FileDescriptor(fcntl(segment.get(), F_DUPFD_CLOEXEC, 0));
    segment_ = std::make_shared<Segment>(std::move(segment));
  }

  [[nodiscard]] std::unique_ptr<Communicator> join(int rank) override {
    const std::uint32_t domain = domains_.empty() ? 0 : domains_.at(static_cast<std::size_t>(rank));
    return std::make_unique<ShmCommunicator>(
        std::make_shared<ShmWorld>(segment_, rank, ranks_, ShmCommunicator::world_bytes(ranks_), nullptr, domain));
  }

  [[nodiscard]] std::int64_t bytes_taken() const override {
    struct stat status {};
    EXPECT_EQ(fstat(descriptor_.get(), &status), 0);
    return std::int64_t{status.st_blocks} * 512;
  }

 private:
  int ranks_;
  std::vector<std::uint32_t> domains_;
  FileDescriptor descriptor_;  // the segment does not give away its own
  std::shared_ptr<Segment> segment_;
};

}  // namespace

Groups summed_groups(int ranks) { return one_group(static_cast<std::size_t>(ranks)); }

std::unique_ptr<Transport> make_transport(int ranks) { return std::make_unique<ShmTransport>(ranks); }

std::unique_ptr<Transport> make_transport_in(std::vector<std::uint32_t> domains) {
  const int ranks = static_cast<int>(domains.size());
  return std::make_unique<ShmTransport>(ranks, std::move(domains));
}

}  // namespace tnt::testing
