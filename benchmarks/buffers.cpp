#include "benchmarks/buffers.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>

namespace tnt::bench {
namespace {

constexpr std::size_t guard = 64;
constexpr std::size_t line = 64;
constexpr auto mark = std::byte{0xa5};

std::size_t round_up(std::size_t bytes) { return (bytes + line - 1) / line * line; }

}  // namespace

std::size_t last_level_cache_bytes() {
  // sysconf is of little use here: on virtual machines it reports the caches of the whole host
  int highest = 0;
  std::size_t kilobytes = 0;
  for (int index = 0; index < 10; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int level = 0;
    std::size_t size = 0;
    if (!(std::ifstream(folder + "level") >> level) || !(std::ifstream(folder + "size") >> size)) break;
    if (level < highest) continue;
    highest = level;
    kilobytes = size;
  }
  constexpr std::size_t assumed = std::size_t{32} << 20;
  return kilobytes > 0 ? kilobytes * 1024 : assumed;
}

Pool::Pool(std::size_t bytes, std::size_t shift, Cache cache)
    : bytes_(bytes), shift_(shift), stride_(guard + round_up(shift + bytes) + guard) {
  // input and output pools together have four times the size of the cache, so no buffer is still cached when it is used again
  const std::size_t wanted = cache == Cache::rotate ? 2 * last_level_cache_bytes() : 1;
  count_ = std::max<std::size_t>(1, (wanted + stride_ - 1) / stride_);
  void* memory = mmap(nullptr, stride_ * count_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure(fmt::format("no memory for {} buffers of {} bytes", count_, bytes_));
  (void)madvise(memory, stride_ * count_, MADV_HUGEPAGE);  // fewer page faults; slower without it, but correct
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t index = 0; index < count_; ++index) {
    std::byte* slot = memory_ + index * stride_;
    std::fill(slot, at(index), mark);
    std::fill(at(index) + bytes_, slot + stride_, mark);
  }
}

Pool::~Pool() { munmap(memory_, stride_ * count_); }

std::byte* Pool::at(std::size_t index) const noexcept { return memory_ + index * stride_ + guard + shift_; }

std::byte* Pool::next() noexcept { return at(turn_++ % count_); }

std::string Pool::damage() const {
  const auto damaged = [](const std::byte* begin, const std::byte* end) {
    return std::count_if(begin, end, [](auto b) { return b != mark; });
  };
  for (std::size_t index = 0; index < count_; ++index) {
    const std::byte* slot = memory_ + index * stride_;
    if (const auto n = damaged(slot, at(index)); n > 0) return fmt::format("{} bytes before a buffer were overwritten", n);
    if (const auto n = damaged(at(index) + bytes_, slot + stride_); n > 0) {
      return fmt::format("{} bytes after a buffer were overwritten", n);
    }
  }
  return "";
}

}  // namespace tnt::bench
