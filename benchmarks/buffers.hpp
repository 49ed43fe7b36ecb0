// Buffers for collectives: enough of them to exceed the caches, with guard bytes around each.
#pragma once

#include <cstddef>
#include <string>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// Buffers of one size, used in turn. Each has 64 guard bytes before and after it.
class Pool {
 public:
  // shift: offset from 64-byte alignment in bytes. Throws Failure if there is not enough memory.
  Pool(std::size_t bytes, std::size_t shift, Cache cache);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  [[nodiscard]] std::byte* next() noexcept;  // the least recently used buffer
  [[nodiscard]] std::byte* first() const noexcept { return at(0); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::byte* at(std::size_t index) const noexcept;

  // Empty, or the guard that was overwritten: "3 bytes after the buffer".
  [[nodiscard]] std::string damage() const;

 private:
  std::size_t bytes_;
  std::size_t shift_;
  std::size_t stride_;
  std::size_t count_;
  std::size_t turn_ = 0;
  std::byte* memory_;
};

[[nodiscard]] std::size_t last_level_cache_bytes();

}  // namespace tnt::bench
