// The memory that the ranks of one node share: an anonymous file descriptor (memfd) whose parts are mapped on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/file_descriptor.hpp"
#include "base/forks.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// Shared memory in this process' addresses. A fork of this process does not have it: an access there is a segmentation fault.
class Mapping : NonCopyable {
 public:
  Mapping(const FileDescriptor& segment, std::uint64_t offset, std::size_t bytes);  // throws TNT_SYSTEM
  ~Mapping();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// Sparse: address space costs nothing. The kernel allocates pages at the first write, and discard frees them. Forks of this
// process close the descriptor, so the memory ends with the job.
class Segment {
 public:
  [[nodiscard]] static FileDescriptor create();  // creates an empty segment; throws TNT_SYSTEM

  explicit Segment(FileDescriptor descriptor) : descriptor_(std::move(descriptor)), closed_in_forks_(descriptor_.get()) {}

  // Ranks that are threads of one process and share a Segment get the same addresses, so that sanitizers see their races.
  [[nodiscard]] std::shared_ptr<Mapping> map(std::uint64_t offset, std::size_t bytes);

  // Frees the pages, so that their content becomes zero. False if the system cannot: they stay until the job ends then.
  bool discard(std::uint64_t offset, std::size_t bytes) noexcept;

 private:
  FileDescriptor descriptor_;
  ClosedInForks closed_in_forks_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Mapping>> mappings_;  // those that have ended are erased now and then:
  std::size_t sweep_at_ = 16;                                 // when there are so many
};

[[nodiscard]] std::size_t page_size() noexcept;
[[nodiscard]] std::size_t whole_pages(std::size_t bytes) noexcept;  // the bytes of as many pages as hold so many

}  // namespace tnt
