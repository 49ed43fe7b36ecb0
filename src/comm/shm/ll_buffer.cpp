#include "comm/shm/ll_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace tnt {
namespace {

// An empty message may have a null pointer.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// Writes the last line first: a reader polls the first line and does not disturb the writes to the others.
void LLBuffer::write(const void* data, std::size_t bytes, std::uint64_t signature) noexcept {
  ++sequence_;
  lines_read_.fill(0);
  Line* const lines = message(self_);
  const auto* from = static_cast<const std::byte*>(data);
  for (std::size_t line = line_count(bytes); line-- > 1;) {
    const std::size_t begin = line * payload - sizeof(signature);
    copy_bytes(lines[line].content.data(), from + begin, std::min(payload, bytes - begin));
    lines[line].sequence.store(sequence_, std::memory_order_release);
  }
  std::memcpy(lines->content.data(), &signature, sizeof(signature));
  copy_bytes(lines->content.data() + sizeof(signature), from, std::min(payload - sizeof(signature), bytes));
  lines->sequence.store(sequence_, std::memory_order_release);
}

LLBuffer::Status LLBuffer::read(std::size_t member, void* data, std::size_t bytes, std::uint64_t signature) noexcept {
  const Line* const lines = message(member);
  std::size_t& next = lines_read_[member];
  for (; next < line_count(bytes); ++next) {
    const Line& line = lines[next];
    if (line.sequence.load(std::memory_order_acquire) != sequence_) return Status::incomplete;
    if (next == 0) {
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, line.content.data(), sizeof(theirs));
      if (theirs != signature) return Status::mismatch;
    }
    const std::size_t skipped = next == 0 ? sizeof(signature) : 0;
    const std::size_t begin = next == 0 ? 0 : next * payload - sizeof(signature);
    copy_bytes(static_cast<std::byte*>(data) + begin, line.content.data() + skipped,
               std::min(payload - skipped, bytes - begin));
  }
  return Status::complete;
}

}  // namespace tnt
