// Shared memory: zero when new, the same through every mapping, returned by discard, never mapped beyond its end.
#include "comm/shm/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

std::int64_t cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

TEST(Segment, IsZeroAndShared) {
  FileDescriptor descriptor = Segment::create();
  Segment other(FileDescriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0)));
  Segment segment(std::move(descriptor));
  const auto here = segment.map(page_size(), 1000);
  const auto there = other.map(page_size(), 1000);
  EXPECT_NE(here->data(), there->data());
  EXPECT_EQ(here->data()[999], std::byte{0});
  here->data()[999] = std::byte{7};
  EXPECT_EQ(there->data()[999], std::byte{7});
}

TEST(Segment, GivesTheSameAddressWhileMapped) {
  Segment segment(Segment::create());
  const auto first = segment.map(0, 100);
  EXPECT_EQ(segment.map(0, 100), first);
  EXPECT_NE(segment.map(page_size(), 100), first);
}

TEST(Segment, PunchGivesMemoryBack) {
  FileDescriptor descriptor = Segment::create();
  const FileDescriptor probe(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(probe.get(), &status), 0);
    return status.st_blocks;
  };
  Segment segment(std::move(descriptor));
  const std::size_t bytes = 64 * page_size();
  const auto mapping = segment.map(0, bytes);
  EXPECT_EQ(blocks(), 0);
  std::fill_n(mapping->data(), bytes, std::byte{1});
  EXPECT_GE(static_cast<std::size_t>(blocks()) * 512, bytes);
  segment.discard(0, bytes);
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(mapping->data()[bytes - 1], std::byte{0});
}

// msync fails where nothing is mapped.
TEST(Segment, IsNotMappedInForks) {
  Segment segment(Segment::create());
  const auto mapping = segment.map(0, page_size());
  ASSERT_EQ(msync(mapping->data(), page_size(), MS_ASYNC), 0);
  const pid_t pid = fork();
  if (pid == 0) _exit(msync(mapping->data(), page_size(), MS_ASYNC) == 0 ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST(Segment, EndsWithAMessage) {
  Segment segment(Segment::create());
  const std::uint64_t end = std::uint64_t{1} << 42;
  EXPECT_NO_THROW((void)segment.map(end - page_size(), page_size()));
  EXPECT_THROW((void)segment.map(end, page_size()), Error);
}

// Without a look at the limit, the kernel ends the process by SIGXFSZ.
TEST(Segment, IsAsLargeAsFilesMayBe) {
  const std::size_t limit = 4 * page_size() + 100;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = limit, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  Segment segment(Segment::create());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  const auto mapping = segment.map(3 * page_size(), page_size());
  mapping->data()[page_size() - 1] = std::byte{7};
  try {
    (void)segment.map(4 * page_size(), page_size());
    ADD_FAILURE() << "mapped what is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_EQ(std::string(error.what()),
              fmt::format("the job's shared memory may have {} bytes, which is too little, because rank 0 of this node was "
                          "started with a limit on file sizes: raise it (ulimit -f unlimited)",
                          4 * page_size()));
  }
}

// A look at all mappings for each new one would make this quadratic: minutes.
TEST(Segment, ManyMappingsCostLittleEach) {
  Segment segment(Segment::create());
  std::vector<std::shared_ptr<Mapping>> mappings;
  const std::int64_t begin = cpu_ns();
  constexpr std::size_t many = 20'000;
  for (std::size_t i = 0; i < many; ++i) mappings.push_back(segment.map(i * page_size(), page_size()));
  EXPECT_LT(cpu_ns() - begin, 2'000'000'000);
  mappings.clear();
  EXPECT_NE(segment.map(0, page_size()), nullptr);
}

}  // namespace
}  // namespace tnt
