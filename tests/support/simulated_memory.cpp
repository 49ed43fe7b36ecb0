#include "support/simulated_memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/error.hpp"

namespace tnt::testing {
namespace {

constexpr std::size_t region_bytes = std::size_t{8} << 30;  // of address space; memory is allocated when it is used
constexpr std::size_t page = 4096;
constexpr std::size_t guard = 256;  // before and after each block
constexpr std::size_t alignment = 256;
constexpr int guard_value = 0xC3;
constexpr int fresh_value = 0xA5;
constexpr int released_value = 0xDB;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::byte* reserve(int protection) {
  void* memory = mmap(nullptr, region_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail_errno("cannot reserve addresses for simulated devices");
  return static_cast<std::byte*>(memory);
}

const std::byte* closed_begin = nullptr;
struct sigaction handler_before {};

// Describes the access, then lets the previous handler, or the system, end the process: the access happens again.
void on_fault(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  if (at >= closed_begin && at < closed_begin + region_bytes) {
    constexpr char message[] = "the host touched memory of a simulated device: only work on a stream may\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof message - 1);
  }
  sigaction(SIGSEGV, &handler_before, nullptr);
}

void watch_faults(const std::byte* begin) {
  closed_begin = begin;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &handler_before);
}

}  // namespace

SimulatedMemory& SimulatedMemory::of_process() {
  static auto* memory = new SimulatedMemory;  // devices may live as long as the process
  return *memory;
}

SimulatedMemory::SimulatedMemory() {
  device_.begin = reserve(PROT_NONE);
  pinned_.begin = reserve(PROT_READ | PROT_WRITE);
  watch_faults(device_.begin);
}

void SimulatedMemory::protect(int protection) {
  if (device_.used > 0) mprotect(device_.begin, round_up(device_.used, page), protection);
}

void SimulatedMemory::open() {
  const std::scoped_lock lock(mutex_);
  if (openers_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void SimulatedMemory::close() {
  const std::scoped_lock lock(mutex_);
  if (--openers_ == 0) protect(PROT_NONE);
}

std::byte* SimulatedMemory::take(Region& region, std::size_t bytes) {
  const std::size_t needed = round_up(bytes + 2 * guard, alignment);
  if (region.used + needed > region_bytes) fail(TNT_SYSTEM, "cannot allocate {} bytes: the simulated memory is used up", bytes);
  std::byte* memory = region.begin + region.used + guard;
  region.used += needed;
  if (&region == &device_) protect(PROT_READ | PROT_WRITE);  // until the caller closes it
  return memory;
}

void SimulatedMemory::rubbish(const MemoryBlock& block, int value) {
  std::memset(block.memory - guard, guard_value, guard);
  std::memset(block.memory + block.bytes, guard_value, guard);
  std::memset(block.memory, value, block.bytes);
}

void* SimulatedMemory::allocate(const void* owner, PointerAttributes place, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const bool closed = place.kind == PointerAttributes::Kind::device && openers_ == 0;
  MemoryBlock block{place, owner, nullptr, bytes, false, fmt::format("memory {}", blocks_.size() + 1)};
  block.memory = take(place.kind == PointerAttributes::Kind::device ? device_ : pinned_, bytes);
  rubbish(block, fresh_value);
  if (closed) protect(PROT_NONE);
  return blocks_.emplace(block.memory, block).first->second.memory;
}

bool SimulatedMemory::release(void* memory) {
  const Open open;
  const std::scoped_lock lock(mutex_);
  MemoryBlock& block = blocks_.at(static_cast<const std::byte*>(memory));
  const bool intact = guards_intact(block);
  block.released = true;
  rubbish(block, released_value);
  if (block.bytes >= 16 * page) {  // large: the pages are returned
    auto* first = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(block.memory), page));
    madvise(first, static_cast<std::size_t>(block.end() - first) / page * page, MADV_DONTNEED);
  }
  return intact;
}

bool SimulatedMemory::guards_intact(const MemoryBlock& block) {
  const auto intact = [](const std::byte* zone) {
    return std::all_of(zone, zone + guard, [](std::byte value) { return value == std::byte{guard_value}; });
  };
  return intact(block.memory - guard) && intact(block.end());
}

std::optional<MemoryBlock> SimulatedMemory::block_of(const void* memory) {
  const std::scoped_lock lock(mutex_);
  const auto* at = static_cast<const std::byte*>(memory);
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return std::nullopt;
  const MemoryBlock& block = std::prev(next)->second;
  if (at > block.end()) return std::nullopt;
  return block;
}

void SimulatedMemory::name(const void* memory, const std::string& name) {
  const std::scoped_lock lock(mutex_);
  blocks_.at(static_cast<const std::byte*>(memory)).name = name;
}

std::vector<MemoryBlock> SimulatedMemory::blocks_of_owner(const void* owner) {
  const std::scoped_lock lock(mutex_);
  std::vector<MemoryBlock> blocks;
  for (const auto& [begin, block] : blocks_) {
    if (block.owner == owner && !block.released) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace tnt::testing
