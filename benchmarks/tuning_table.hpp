// The tuning file: by which sizes the library's all_reduce in shared memory chooses its algorithm. `tnt-bench tune` writes it,
// and every job reads it. docs/benchmark.md describes it.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tnt::bench {

// For one number of ranks, in bytes. The defaults and limits are the library's.
struct Tuning {
  std::size_t ll_bytes = max_ll;                          // up to here the LL protocol
  std::size_t one_shot_bytes = std::size_t{8} * 1024;     // up to here one-shot, above two-shot
  std::size_t streaming_bytes = std::size_t{512} * 1024;  // from here on streaming stores
  std::size_t chunk_bytes = std::size_t{256} * 1024;      // of a two-shot chunk
  bool operator==(const Tuning&) const = default;

  static constexpr std::size_t max_ll = 512;
  static constexpr std::size_t max_ll_ranks = 16;
  static constexpr std::size_t max_one_shot = std::size_t{64} * 1024;
  static constexpr std::size_t never_streaming = std::size_t{1} << 50;
  static constexpr std::size_t min_chunk = std::size_t{32} * 1024;
};

class TuningTable {
 public:
  static constexpr std::size_t max_entries = 64;

  TuningTable() = default;
  // Of a file's text. Throws Failure for a text that no `tnt-bench tune` of this version has written.
  explicit TuningTable(const std::string& text);

  void set_default(const Tuning& tuning) { default_ = tuning; }
  void set(int ranks, const Tuning& tuning) { entries_[ranks] = tuning; }
  [[nodiscard]] std::string text() const;

 private:
  Tuning default_;
  std::map<int, Tuning> entries_;
};

}  // namespace tnt::bench
