#include "comm/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/error.hpp"
#include "common/memory.hpp"

namespace tnt {
namespace {

constexpr off_t address_space = off_t{1} << 42;  // 4 TiB: 640 communicators of 512 ranks at a time, 3,700 of 64

std::uint64_t size_of(const FileDescriptor& segment) {
  struct stat status {};
  if (fstat(segment.get(), &status) != 0) fail_errno("cannot read the size of shared memory");
  return static_cast<std::uint64_t>(status.st_size);
}

[[noreturn]] void fail_full(std::uint64_t size) {
  if (size == address_space) fail(TNT_SYSTEM, "the job's shared memory has no addresses left: too many communicators exist");
  fail(
      TNT_SYSTEM,
      "the job's shared memory may have {} bytes, which is too little, because rank 0 of this node was started with a limit on "
      "file sizes: raise it (ulimit -f unlimited)",
      size);
}

}  // namespace

std::size_t page_size() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t whole_pages(std::size_t bytes) noexcept { return rounded_up(bytes, page_size()); }

Mapping::Mapping(const FileDescriptor& segment, std::uint64_t offset, std::size_t bytes) : bytes_(bytes) {
  if (const std::uint64_t size = size_of(segment); offset + bytes > size) fail_full(size);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.get(), static_cast<off_t>(offset));
  if (address == MAP_FAILED) fail_errno(fmt::format("cannot map {} bytes of shared memory", bytes));
  data_ = static_cast<std::byte*>(address);
  // an old kernel may refuse: the C API refuses forks all the same
  (void)madvise(address, bytes, MADV_DONTFORK);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

FileDescriptor Segment::create() {
  FileDescriptor descriptor(memfd_create("tarantella", MFD_CLOEXEC));
  if (!descriptor) fail_errno("cannot make shared memory (memfd_create)");
  // beyond the limit, the kernel would end the process
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) fail_errno("cannot read the limit on file sizes");
  const auto size = static_cast<off_t>(std::min<rlim_t>(address_space, limit.rlim_cur / page_size() * page_size()));
  if (ftruncate(descriptor.get(), size) != 0) fail_errno("cannot size shared memory");
  return descriptor;
}

std::shared_ptr<Mapping> Segment::map(std::uint64_t offset, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (mappings_.size() >= sweep_at_) {  // seldom, so that a mapping does not cost a look at all others
    std::erase_if(mappings_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * mappings_.size() + 16;
  }
  std::weak_ptr<Mapping>& known = mappings_[offset];
  if (auto mapping = known.lock()) return mapping;
  auto mapping = std::make_shared<Mapping>(descriptor_, offset, bytes);
  known = mapping;
  return mapping;
}

bool Segment::discard(std::uint64_t offset, std::size_t bytes) noexcept {
  return fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

}  // namespace tnt
