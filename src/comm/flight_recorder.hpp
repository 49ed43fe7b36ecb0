// The flight recorder: the last calls of this rank, in memory that outlives it. The launcher makes the memory, so that it can
// read the record of a rank that is stopped or dead (python/tarantella/flight/record.py has the same layout).
//
// A record must not cost a small collective its time, so it is written where a rank waits anyway, without locks, and without
// reading the clock more often than the call does by itself.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"
#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// The layout of the memory, for processes of one version. All zero: nothing was recorded.
struct FlightRecord {
  static constexpr std::uint64_t magic_number = 0x31304c46544e54;  // "TNTFL01"
  static constexpr std::size_t max_members = 512;                  // of more, the first ones are named
  static constexpr std::size_t n_lanes = 256;
  static constexpr std::size_t n_entries = 1024;  // of each lane
  static constexpr std::size_t n_names = 1024;
  static constexpr std::size_t name_bytes = 128;
  static constexpr std::uint16_t name_lost = n_names;  // the table was full

  struct Entry {
    static constexpr std::uint32_t open = 0xffffffff;  // for a duration: the call has not ended
    // Four words, because each store counts in a call of 90 ns.
    std::atomic<std::int64_t> begin_ns;  // 0: a small call that found all others there, so no clock was read
    std::atomic<std::uint64_t> count;
    // Lower half: the number of the call in its communicator, from 1, the same on all ranks. Upper half: its microseconds.
    std::atomic<std::uint64_t> number_and_duration;
    // Kind, dtype and op, 8 bits each; from bit 32, the root, or the other rank of a message; from bit 48, 1 + the index of the
    // name, 0 for none.
    std::atomic<std::uint64_t> what;

    [[nodiscard]] std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(number_and_duration.load()); }
    [[nodiscard]] std::uint32_t duration_us() const noexcept {
      return static_cast<std::uint32_t>(number_and_duration.load() >> 32);
    }
  };
  enum class LaneState : std::uint32_t { unused, used, closed };
  // The calls of one communicator, or its messages.
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> recorded;   // how many entries were ever begun
    std::atomic<std::int64_t> waiting_ns;  // when the rank was last seen to wait for others in a call
    std::atomic<LaneState> state;
    std::uint32_t messages;  // 1: entries are messages
    std::uint64_t id;        // of the communicator, the same on its ranks; members tell equal ones apart
    std::uint32_t size;
    std::uint32_t self;
    std::array<char, 16> transport;
    std::array<std::uint16_t, max_members> members;  // ranks in the job
  };
  struct Progress {
    std::atomic<std::uint64_t> step;
    std::atomic<double> samples;             // of all steps so far
    std::atomic<double> samples_per_second;  // of about the last second
    std::atomic<std::int64_t> changed_ns;
  };

  std::atomic<std::uint64_t> magic;
  std::uint32_t rank;
  std::uint32_t ranks;
  std::int32_t pid;
  std::uint32_t bytes;
  std::int64_t joined_ns;       // CLOCK_MONOTONIC, as all times here
  std::int64_t wall_offset_ns;  // added to it: the time of day
  Progress progress;
  std::atomic<std::uint32_t> names_used;
  std::atomic<std::uint32_t> lanes_missed;  // communicators for which there was no lane
  alignas(4096) std::array<std::array<char, name_bytes>, n_names> names;
  alignas(4096) std::array<Lane, n_lanes> lanes;
  alignas(4096) std::array<std::array<Entry, n_entries>, n_lanes> entries;
};
static_assert(sizeof(FlightRecord::Entry) == 32 && sizeof(FlightRecord::Lane) == 1088);

class FlightRecorder;

// Where a communicator records its calls. One thread at a time, but for messages.
class FlightLane {
 public:
  FlightLane() = default;  // records nothing
  FlightLane(FlightLane&& other) noexcept { swap(other); }
  FlightLane& operator=(FlightLane&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FlightLane();

  [[nodiscard]] bool enabled() const noexcept { return lane_ != nullptr; }

  // The time of a call is exact if it has a name or many elements. That of others is known if they wait.
  [[nodiscard]] static bool is_exact(const Call& call, const CallContext& context) noexcept {
    return !context.detail.empty() || call.count >= exact_count;
  }
  // begin_ns: 0 if it is not known yet.
  void begin(const Call& call, std::uint64_t number, std::string_view name, std::int64_t begin_ns) noexcept {
    if (lane_ == nullptr) return;
    entry_ = &entries_[recorded_ % FlightRecord::n_entries];
    number_ = number;
    begin_ns_ = begin_ns;
    write(*entry_, call, number, name.empty() ? 0 : name_of(name), begin_ns);
    lane_->recorded.store(++recorded_, std::memory_order_release);
  }
  // The rank begins to wait in the call: its begin, if that is not known.
  void waits(std::int64_t now) noexcept {
    if (entry_ == nullptr || begin_ns_ != 0) return;
    begin_ns_ = now;
    entry_->begin_ns.store(now, std::memory_order_relaxed);
  }
  void still_waits(std::int64_t now) noexcept {
    if (lane_ != nullptr) lane_->waiting_ns.store(now, std::memory_order_relaxed);
  }
  // end_ns: 0 if no clock was read.
  void end(std::int64_t end_ns) noexcept {
    if (entry_ != nullptr) write_end(*entry_, number_, begin_ns_, end_ns);
  }

  // Messages, from several threads at once. nullptr if nothing is recorded.
  struct Message {
    FlightRecord::Entry* entry = nullptr;
    std::uint64_t number = 0;
    std::int64_t begin_ns = 0;
  };
  [[nodiscard]] Message begin_message(const Call& call, std::string_view name, std::int64_t begin_ns) noexcept;
  static void end_message(const Message& message, std::int64_t end_ns) noexcept;

 private:
  friend class FlightRecorder;
  static constexpr std::size_t exact_count = std::size_t{16} * 1024;

  void swap(FlightLane& other) noexcept;
  static void write(FlightRecord::Entry& entry, const Call& call, std::uint64_t number, std::uint64_t name_plus,
                    std::int64_t begin_ns) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    const std::uint64_t kinds = std::uint64_t{call.kind} | std::uint64_t{static_cast<std::uint8_t>(call.dtype)} << 8 |
                                std::uint64_t{static_cast<std::uint8_t>(call.op)} << 16;
    entry.begin_ns.store(begin_ns, relaxed);
    entry.count.store(call.count, relaxed);
    entry.number_and_duration.store(number_and(number, FlightRecord::Entry::open), relaxed);
    entry.what.store(kinds | std::uint64_t{static_cast<std::uint16_t>(call.root)} << 32 | name_plus << 48, relaxed);
  }
  static std::uint64_t number_and(std::uint64_t number, std::uint32_t duration) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(number)} | std::uint64_t{duration} << 32;
  }
  static void write_end(FlightRecord::Entry& entry, std::uint64_t number, std::int64_t begin_ns, std::int64_t end_ns) noexcept {
    constexpr std::int64_t longest = FlightRecord::Entry::open - 1;
    const std::int64_t us = begin_ns == 0 || end_ns <= begin_ns ? 0 : std::min((end_ns - begin_ns) / 1000, longest);
    entry.number_and_duration.store(number_and(number, static_cast<std::uint32_t>(us)), std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint16_t name_of(std::string_view name) noexcept;
  [[nodiscard]] std::uint16_t name_of_message(std::string_view name) const noexcept;  // from any thread

  struct KnownName {
    const char* text;
    std::size_t length;
    std::uint16_t plus;
  };

  std::shared_ptr<FlightRecorder> recorder_;
  FlightRecord::Lane* lane_ = nullptr;
  FlightRecord::Entry* entries_ = nullptr;
  FlightRecord::Entry* entry_ = nullptr;  // of the last call
  std::uint64_t recorded_ = 0;
  std::uint64_t number_ = 0;                 // of the last call
  std::int64_t begin_ns_ = 0;                // likewise
  std::array<KnownName, 16> known_names_{};  // by their address: buckets have theirs as long as they exist
};

class FlightRecorder : public std::enable_shared_from_this<FlightRecorder> {
 public:
  // memory: a descriptor of sizeof(FlightRecord) zero bytes, or of the record of an earlier rank of this process. Throws
  // TNT_SYSTEM.
  FlightRecorder(const FileDescriptor& memory, int rank, int ranks);
  ~FlightRecorder();

  // The one in the memory that the launcher has given to this process: "descriptor:device:inode". nullptr if that is empty, or
  // not this process' descriptor any more, as in a program that a rank has started. Takes the descriptor.
  [[nodiscard]] static std::shared_ptr<FlightRecorder> open(const std::string& place, int rank, int ranks);

  // id: of the communicator. members: its ranks in the job. Thread-safe.
  [[nodiscard]] FlightLane open_lane(std::uint64_t id, std::span<const int> members, std::size_t self, const char* transport,
                                     bool messages = false);
  // How far training is. samples: of all steps so far, 0 if unknown. Thread-safe.
  void progress(std::uint64_t step, double samples) noexcept;
  [[nodiscard]] const FlightRecord& record() const noexcept { return *record_; }

 private:
  friend class FlightLane;
  [[nodiscard]] FlightRecord::Lane* find_lane() noexcept;
  [[nodiscard]] std::uint16_t intern(std::string_view name) noexcept;

  FlightRecord* record_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<std::string, std::uint16_t> names_;
  std::size_t next_lane_ = 0;
  std::int64_t window_ns_ = 0;  // where the rate is counted from
  double window_samples_ = 0;
};

// A lane of the recorder, or one that records nothing.
[[nodiscard]] inline FlightLane open_lane(const std::shared_ptr<FlightRecorder>& recorder, std::uint64_t id,
                                          std::span<const int> members, std::size_t self, const char* transport,
                                          bool messages = false) {
  return recorder ? recorder->open_lane(id, members, self, transport, messages) : FlightLane();
}

inline FlightLane::Message FlightLane::begin_message(const Call& call, std::string_view name, std::int64_t begin_ns) noexcept {
  if (lane_ == nullptr) return {};
  const std::uint64_t name_plus = name.empty() ? 0 : name_of_message(name);  // first: it takes a lock
  const std::uint64_t index = lane_->recorded.fetch_add(1, std::memory_order_relaxed);
  const Message message{&entries_[index % FlightRecord::n_entries], index + 1, begin_ns};
  write(*message.entry, call, index + 1, name_plus, begin_ns);
  return message;
}

}  // namespace tnt
