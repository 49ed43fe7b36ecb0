// Small messages that carry their own flags: every cache line ends with a sequence number, so that who sees the number has the
// rest of the line, too. One trip from core to core, where a flag beside the data takes two.
//
// The idea is that of NCCL's LL128 protocol; on x86-64 and ARM alike the order of the line's number after its content is what
// release and acquire give.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tnt {

// Every member writes one message to all others, and reads all of theirs, before it writes the next. Two sets of lines, used
// in turn: who writes a set again has read the other set's messages, which everybody sent after reading this one's.
class LLBuffer {
 public:
  static constexpr std::size_t max_bytes = 512;
  static constexpr std::size_t max_members = 16;  // more would read too many lines
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t members) noexcept {
    return members <= max_members ? members * 2 * line_count(max_bytes) * sizeof(Line) : 0;
  }

  // memory: bytes(members) zero bytes that all members share.
  LLBuffer(std::byte* memory, std::size_t self) noexcept : lines_(reinterpret_cast<Line*>(memory)), self_(self) {}

  // Begins an exchange. signature: a number that goes with the data, to tell one kind of message from another.
  void write(const void* data, std::size_t bytes, std::uint64_t signature) noexcept;

  // Reads what is there, and goes on from there when it is called again. other: a message with another signature, of which
  // nothing was read.
  enum class Status { incomplete, complete, mismatch };
  [[nodiscard]] Status read(std::size_t member, void* data, std::size_t bytes, std::uint64_t signature) noexcept;

 private:
  static constexpr std::size_t payload = 56;
  struct alignas(64) Line {
    std::array<std::byte, payload> content;
    std::atomic<std::uint64_t> sequence;
  };
  [[nodiscard]] static constexpr std::size_t line_count(std::size_t bytes) noexcept {
    return (sizeof(std::uint64_t) + bytes + payload - 1) / payload;  // the signature comes first
  }
  [[nodiscard]] Line* message(std::size_t member) const noexcept {
    return lines_ + (member * 2 + sequence_ % 2) * line_count(max_bytes);
  }

  Line* lines_;
  std::size_t self_;
  std::uint64_t sequence_ = 0;
  std::array<std::size_t, max_members> lines_read_{};  // of the current messages
};

}  // namespace tnt
