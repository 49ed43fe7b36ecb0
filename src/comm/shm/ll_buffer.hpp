// The LL (low-latency) protocol for small messages: every cache line ends with a sequence number as its flag. A reader that
// sees the number also sees the rest of the line. A message takes one trip from core to core; data with a separate flag takes
// two.
//
// The idea is that of NCCL's LL128 protocol. On x86-64 and ARM, release and acquire order the sequence number after the content
// of the line.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tnt {

// Every member writes one message to all others and reads theirs before it writes the next. There are two sets of lines, used
// in turn. A member that writes a set again has read the messages of the other set, which all members sent after they had read
// this one.
class LLBuffer {
 public:
  static constexpr std::size_t max_bytes = 512;
  static constexpr std::size_t max_members = 16;  // with more, reading all lines would take too long
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t members) noexcept {
    return members <= max_members ? members * 2 * line_count(max_bytes) * sizeof(Line) : 0;
  }

  // memory: bytes(members) zero bytes that all members share.
  LLBuffer(std::byte* memory, std::size_t self) noexcept : lines_(reinterpret_cast<Line*>(memory)), self_(self) {}

  // Begins an exchange. signature: a number that identifies the call.
  void write(const void* data, std::size_t bytes, std::uint64_t signature) noexcept;

  // Reads the lines that have arrived; call again to continue. mismatch: the message has another signature, and nothing was
  // read.
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
