// The sizes at which all_reduce in shared memory changes its algorithm, for each number of ranks. `tnt-bench tune` measures
// them and stores them in a file for each host.
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
  std::size_t ll_bytes = LLBuffer::max_bytes;  // maximum for the LL protocol
  std::size_t one_shot_bytes =
      std::size_t{8} * 1024;  // maximum for one-shot: reading everything is cheaper than a second barrier
  std::size_t streaming_bytes = std::size_t{512} * 1024;  // minimum for streaming stores: larger buffers are in no cache
  std::size_t chunk_bytes = Slots::slot_bytes;            // part of a slot that a chunk uses
  bool operator==(const Tuning&) const = default;

  static constexpr std::size_t max_one_shot = std::size_t{64} * 1024;
  static constexpr std::size_t never_streaming = std::size_t{1} << 50;
  static constexpr std::size_t min_chunk = std::size_t{32} * 1024;  // a cache line for each of max_ranks
};

// Trivially copyable, because it lies in shared memory.
class TuningTable {
 public:
  static constexpr std::size_t max_entries = 64;

  // The entry for this number of ranks, else the entry for the nearest number (the smaller of two), else the default.
  [[nodiscard]] const Tuning& of(std::size_t ranks) const noexcept;

  void set_default(const Tuning& tuning) noexcept { default_ = tuning; }
  // Replaces the entry for this number of ranks. Throws TNT_INVALID_ARGUMENT if the table is full.
  void set(std::size_t ranks, const Tuning& tuning);

  // Throws TNT_INVALID_ARGUMENT that names the key: "entries[1].ll_bytes is 4096: ...".
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

// Reads a table from a file. Throws TNT_INVALID_ARGUMENT that names the file and the invalid key.
[[nodiscard]] TuningTable read_tuning_file(const std::string& path);

}  // namespace tnt
