#include "comm/shm/direct_moves.hpp"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "common/memory.hpp"
#include "kernels/cpu/copy.hpp"

namespace tnt {
namespace {

// False if not all of it can be read. The process may be this one.
bool read_memory(int pid, void* to, const void* from, std::size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes;) {
    const iovec local{at(to, done), bytes - done};
    const iovec remote{const_cast<std::byte*>(at(from, done)), bytes - done};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

void bring_into_caches(const void* memory, std::size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes; done += cache_line_bytes) {
    (void)*static_cast<const volatile std::byte*>(at(memory, done));
  }
}

}  // namespace

void permit_direct_reads() noexcept {
  prctl(PR_SET_PTRACER, getppid(), 0, 0, 0);  // fails without Yama, which then forbids nothing
}

// In a slot: the member's answer, and after it the address of its block for each member.
bool DirectMoves::move(std::span<const void* const> given, std::span<const Block> taken, bool may_be_read, std::size_t ahead) {
  std::memcpy(slots_.of(self_) + sizeof(Answer), given.data(), given.size_bytes());
  if (least(may_be_read ? Answer::yes : Answer::not_now) != Answer::yes) {
    slots_.advance();
    return false;
  }
  const void* last = nullptr;  // all may be given the same
  for (std::size_t member = 0; member < given.size(); ++member) {
    if (member != self_ && given[member] != last) bring_into_caches(last = given[member], ahead);
  }
  const bool was_read = read(given, taken);
  slots_.advance();
  possible_ = least(was_read ? Answer::yes : Answer::never) == Answer::yes;
  slots_.advance();
  if (!possible_) {
    log(LogLevel::info, "ranks cannot read each other's memory (process_vm_readv): large blocks go through shared memory");
  }
  return possible_;
}

DirectMoves::Answer DirectMoves::least(Answer own) {
  std::memcpy(slots_.of(self_), &own, sizeof(own));
  barrier_.arrive_and_wait();
  for (std::size_t member = 0; member < barrier_.members().size(); ++member) {
    Answer other{};
    std::memcpy(&other, slots_.of(member), sizeof(other));
    own = std::min(own, other);
  }
  return own;
}

// Each rank begins behind itself, so that not all read one rank's memory at a time.
bool DirectMoves::read(std::span<const void* const> given, std::span<const Block> taken) const {
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::size_t member = (self_ + i) % taken.size();
    const Block& block = taken[member];
    if (block.bytes == 0) continue;
    if (member == self_) {
      copy(block.to, given[self_], block.bytes, Store::streaming);
      continue;
    }
    const void* from = nullptr;
    std::memcpy(&from, slots_.of(member) + sizeof(Answer) + self_ * sizeof(from), sizeof(from));
    if (!read_memory(world_.pid(barrier_.members()[member]), block.to, from, block.bytes)) return false;
  }
  return true;
}

PathTuner::Times DirectMoves::sum_of_all(const PathTuner::Times& own) {
  std::memcpy(slots_.of(self_), own.data(), sizeof(own));
  barrier_.arrive_and_wait();
  PathTuner::Times sums{};
  for (std::size_t member = 0; member < barrier_.members().size(); ++member) {
    PathTuner::Times one{};
    std::memcpy(one.data(), slots_.of(member), sizeof(one));
    for (std::size_t path = 0; path < one.size(); ++path) sums.at(path) += one.at(path);
  }
  slots_.advance();
  return sums;
}

MovePath::MovePath(DirectMoves& moves, PathTuner& tuner, std::size_t largest) : tuner_(tuner), bytes_(largest) {
  if (!moves.suits(largest)) return;
  next_ = tuner.next(largest);
  if (next_.decides) {
    tuner.decide(largest, moves.sum_of_all(tuner.times(largest)));
    next_.path = tuner.best(largest);
  }
  if (next_.timed) begin_ = now_ns();
}

void MovePath::end() {
  if (next_.timed) tuner_.record(bytes_, next_.path, now_ns() - begin_);
}

}  // namespace tnt
