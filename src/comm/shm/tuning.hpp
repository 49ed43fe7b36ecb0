// Which of its three algorithms an all_reduce in shared memory takes, by size and number of ranks: borders that
// `tnt-bench tune` measures and a file keeps for each host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/shm/ll_buffer.hpp"
#include "comm/shm/slots.hpp"

namespace tnt {

// For one number of ranks. The defaults were measured on two virtual cores.
struct Tuning {
  std::size_t ll_bytes = LLBuffer::max_bytes;             // up to here the data says itself that it is there
  std::size_t one_shot_bytes = std::size_t{8} * 1024;     // up to here reading everything is cheaper than to meet again
  std::size_t streaming_bytes = std::size_t{512} * 1024;  // from here on the caller's buffers are in no cache
  std::size_t chunk_bytes = Slots::slot_bytes;            // of a slot that a chunk uses
  bool operator==(const Tuning&) const = default;

  static constexpr std::size_t max_one_shot = std::size_t{64} * 1024;
  static constexpr std::size_t never_streaming = std::size_t{1} << 50;
  static constexpr std::size_t min_chunk = std::size_t{32} * 1024;  // a cache line for each of the most ranks
};

// A plain value, so that it can lie in shared memory.
class TuningTable {
 public:
  static constexpr std::size_t max_entries = 64;

  // The entry for so many ranks, else the one for the nearest number, the smaller of two; without any, the default.
  [[nodiscard]] const Tuning& of(std::size_t ranks) const noexcept;

  void set_default(const Tuning& tuning) noexcept { default_ = tuning; }
  // Instead of what was there for so many ranks. Throws TNT_INVALID_ARGUMENT if the table is full.
  void set(std::size_t ranks, const Tuning& tuning);

  [[nodiscard]] std::string to_json(const std::string& about) const;  // about: a word for people, which nobody reads back
  // Throws TNT_INVALID_ARGUMENT with what is wrong, after the key: "entries[1].ll_bytes is 4096: ...".
  [[nodiscard]] static TuningTable from_json(const std::string& text);

  bool operator==(const TuningTable& other) const noexcept;

 private:
  struct Entry {
    std::size_t ranks = 0;
    Tuning tuning;
    bool operator==(const Entry&) const = default;
  };

  Tuning default_;
  std::size_t size_ = 0;
  std::array<Entry, max_entries> entries_;
};

// The table in a file. Throws TNT_INVALID_ARGUMENT that names the file, and the key if one is nonsense.
[[nodiscard]] TuningTable read_tuning_file(const std::string& path);

}  // namespace tnt
