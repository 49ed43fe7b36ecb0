#include "comm/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/error.hpp"

namespace tnt {

FlightLane::~FlightLane() {
  if (lane_ != nullptr) lane_->state.store(FlightRecord::LaneState::closed);
}

void FlightLane::swap(FlightLane& other) noexcept {
  std::swap(recorder_, other.recorder_);
  std::swap(lane_, other.lane_);
  std::swap(entries_, other.entries_);
  std::swap(entry_, other.entry_);
  std::swap(recorded_, other.recorded_);
  std::swap(number_, other.number_);
  std::swap(begin_ns_, other.begin_ns_);
  std::swap(known_names_, other.known_names_);
}

void FlightLane::end_message(const Message& message, std::int64_t end_ns) noexcept {
  if (message.entry == nullptr) return;
  // 1024 messages of other threads may have begun meanwhile
  if (message.entry->number() != static_cast<std::uint32_t>(message.number)) return;
  write_end(*message.entry, message.number, message.begin_ns, end_ns);
}

// The text at a known address is compared as well: another may have come there.
std::uint16_t FlightLane::name_of(std::string_view name) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(name.data());
  KnownName& known = known_names_[(address >> 4) % known_names_.size()];
  if (known.text == name.data() && known.length == name.size() && known.plus <= FlightRecord::n_names) {
    const char* const text = recorder_->record().names[known.plus - 1U].data();
    if (name.substr(0, FlightRecord::name_bytes - 1) == text) return known.plus;
  }
  known = {name.data(), name.size(), recorder_->intern(name)};
  return known.plus;
}

std::uint16_t FlightLane::name_of_message(std::string_view name) const noexcept { return recorder_->intern(name); }

FlightRecorder::FlightRecorder(const FileDescriptor& memory, int rank, int ranks) {
  struct stat status {};
  if (fstat(memory.get(), &status) != 0) fail_errno("cannot look at the memory of the flight recorder");
  if (static_cast<std::size_t>(status.st_size) != sizeof(FlightRecord)) {
    fail(TNT_SYSTEM, "the memory of the flight recorder has {} bytes in place of {}: the launcher is of another version",
         status.st_size, sizeof(FlightRecord));
  }
  void* address = mmap(nullptr, sizeof(FlightRecord), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (address == MAP_FAILED) fail_errno("cannot map the memory of the flight recorder");
  (void)madvise(address, sizeof(FlightRecord),
                MADV_DONTFORK);  // an old kernel may refuse: the C API refuses forks all the same
  record_ = static_cast<FlightRecord*>(address);
  record_->rank = static_cast<std::uint32_t>(rank);
  record_->ranks = static_cast<std::uint32_t>(ranks);
  record_->pid = getpid();
  record_->bytes = sizeof(FlightRecord);
  record_->joined_ns = now_ns();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  record_->wall_offset_ns = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec - record_->joined_ns;
  record_->magic.store(FlightRecord::magic_number);
}

FlightRecorder::~FlightRecorder() { munmap(record_, sizeof(FlightRecord)); }

std::shared_ptr<FlightRecorder> FlightRecorder::open(const std::string& place, int rank, int ranks) {
  int number = -1;
  unsigned long long device = 0;
  unsigned long long inode = 0;
  if (std::sscanf(place.c_str(), "%d:%llu:%llu", &number, &device, &inode) != 3) return nullptr;
  struct stat status {};
  if (fstat(number, &status) != 0 || status.st_dev != device || status.st_ino != inode) return nullptr;
  const FileDescriptor memory(fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (!memory) fail_errno("cannot open the memory of the flight recorder");
  (void)fcntl(number, F_SETFD, FD_CLOEXEC);  // stays open: this process may leave its job and join again
  return std::make_shared<FlightRecorder>(memory, rank, ranks);
}

FlightLane FlightRecorder::open_lane(std::uint64_t id, std::span<const int> members, std::size_t self, const char* transport,
                                     bool messages) {
  const std::scoped_lock lock(mutex_);
  FlightLane result;
  FlightRecord::Lane* const lane = find_lane();
  if (lane == nullptr) {
    record_->lanes_missed.fetch_add(1);
    return result;
  }
  lane->recorded.store(0);
  lane->waiting_ns.store(0);
  lane->messages = messages ? 1 : 0;
  lane->id = id;
  lane->size = static_cast<std::uint32_t>(members.size());
  lane->self = static_cast<std::uint32_t>(self);
  lane->transport = {};
  std::strncpy(lane->transport.data(), transport, lane->transport.size() - 1);
  for (std::size_t i = 0; i < std::min(members.size(), FlightRecord::max_members); ++i) {
    lane->members[i] = static_cast<std::uint16_t>(members[i]);
  }
  lane->state.store(FlightRecord::LaneState::used);
  result.recorder_ = shared_from_this();
  result.lane_ = lane;
  result.entries_ = record_->entries[static_cast<std::size_t>(lane - record_->lanes.data())].data();
  return result;
}

// One that was never used, else the one that was given away longest ago and has been closed since.
FlightRecord::Lane* FlightRecorder::find_lane() noexcept {
  for (std::size_t tried = 0; tried < FlightRecord::n_lanes; ++tried) {
    FlightRecord::Lane& lane = record_->lanes[next_lane_++ % FlightRecord::n_lanes];
    if (lane.state.load() != FlightRecord::LaneState::used) return &lane;
  }
  return nullptr;
}

std::uint16_t FlightRecorder::intern(std::string_view name) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    const auto known = names_.find(std::string(name));
    if (known != names_.end()) return known->second;
    const std::uint32_t index = record_->names_used.load();
    if (index == FlightRecord::n_names) return FlightRecord::name_lost + 1;
    auto& text = record_->names[index];
    std::memcpy(text.data(), name.data(), std::min(name.size(), text.size() - 1));
    record_->names_used.store(index + 1);
    const auto plus = static_cast<std::uint16_t>(index + 1);
    names_.emplace(name, plus);
    return plus;
  } catch (const std::bad_alloc&) {
    return FlightRecord::name_lost + 1;
  }
}

void FlightRecorder::progress(std::uint64_t step, double samples) noexcept {
  constexpr std::int64_t window = 1'000'000'000;
  const std::int64_t now = now_ns();
  const std::scoped_lock lock(mutex_);
  FlightRecord::Progress& progress = record_->progress;
  if (window_ns_ == 0 || step <= progress.step.load(std::memory_order_relaxed)) {  // another training has begun
    progress.samples_per_second.store(0, std::memory_order_relaxed);
    window_ns_ = now;
    window_samples_ = samples;
  } else if (now - window_ns_ >= window) {
    const double seconds = static_cast<double>(now - window_ns_) * 1e-9;
    progress.samples_per_second.store((samples - window_samples_) / seconds, std::memory_order_relaxed);
    window_ns_ = now;
    window_samples_ = samples;
  }
  progress.samples.store(samples, std::memory_order_relaxed);
  progress.changed_ns.store(now, std::memory_order_relaxed);
  progress.step.store(step, std::memory_order_relaxed);
}

}  // namespace tnt
