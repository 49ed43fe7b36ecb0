#include "simt/simt.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "simt/fiber.hpp"

namespace simt {
namespace {

enum class State { not_begun, running, ready, waits_for_block, waits_for_warp, ended };

struct Thread {
  State state = State::not_begun;
  std::source_location at;               // the call at which it waits
  Fiber* fiber = nullptr;                // the barrier or warp that it waits for
  unsigned exchanges = 0;                // how many it has passed
  std::array<std::uint64_t, 2> given{};  // for the last two: no thread of a warp may be further ahead than one
};

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string name_of(const std::source_location& at) {
  const std::string_view path = at.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), at.line());
}

// A block of a host thread. A fiber runs threads that have not started, one after another; only a thread that waits keeps its
// fiber. So a kernel without barriers runs on one fiber, without a switch.
class Block {
 public:
  void run(const char* kernel, unsigned block, const std::function<void()>& body, std::span<const unsigned> order);

  void wait(State state, std::source_location at);
  std::uint64_t exchange(std::uint64_t value, unsigned from, std::source_location at);

  Place place;

 private:
  static void serve();
  void begin_threads();
  Fiber& next();
  void arrive_at_warp(unsigned warp);
  bool release();
  bool release_if_all(State waiting, unsigned begin, unsigned end);
  [[noreturn]] void report();

  const char* kernel_ = nullptr;
  unsigned block_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::span<const unsigned> order_;  // the threads' indices in the order in which they run
  std::size_t begun_ = 0;            // of order_
  std::vector<Thread> threads_;
  std::vector<unsigned> ranks_;    // of each thread, in that order
  std::set<unsigned> ready_;       // positions: the first in the order runs first
  std::vector<unsigned> at_warp_;  // of each warp: how many threads wait for it
  std::exception_ptr failure_;
  Fiber host_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

thread_local std::unique_ptr<Block> current;
thread_local Schedule schedule = Schedule::ascending;
thread_local unsigned schedule_seed = 0;
thread_local unsigned threads_of_warp = 32;

void Block::run(const char* kernel, unsigned block, const std::function<void()>& body, std::span<const unsigned> order) {
  kernel_ = kernel;
  block_ = block;
  body_ = &body;
  order_ = order;
  begun_ = 0;
  threads_.assign(order.size(), {});
  ready_.clear();
  at_warp_.assign((order.size() + warp_size() - 1) / warp_size(), 0);
  ranks_.resize(order.size());
  for (unsigned rank = 0; rank < order.size(); ++rank) ranks_[order[rank]] = rank;
  running_ = &host_;
  do {
    Fiber& fiber = next();
    if (&fiber == &host_) break;
    running_ = &fiber;
    fiber.switch_from(host_);
    running_ = &host_;
    if (failure_) std::rethrow_exception(failure_);
  } while (release());
}

// What runs next: a thread that need not wait any longer, the threads that have not started, or the host.
Fiber& Block::next() {
  if (failure_) return host_;
  if (begun_ < order_.size()) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(&Block::serve));
      idle_.push_back(fibers_.back().get());
    }
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  if (ready_.empty()) return host_;
  const unsigned index = order_[*ready_.begin()];
  ready_.erase(ready_.begin());
  return *threads_[index].fiber;
}

// The endless loop of a fiber.
void Block::serve() {
  Block& block = *current;
  for (;;) {
    block.begin_threads();
    Fiber& own = *block.running_;
    block.idle_.push_back(&own);
    Fiber& other = block.next();
    if (&other == &own) continue;
    block.running_ = &other;
    other.switch_from(own);
  }
}

void Block::begin_threads() {
  while (begun_ < order_.size() && !failure_) {
    const unsigned index = order_[begun_++];
    place.thread_index.x = index;
    threads_[index].state = State::running;
    try {
      (*body_)();
    } catch (...) {
      failure_ = std::current_exception();
    }
    threads_[place.thread_index.x].state = State::ended;
  }
}

void Block::wait(State state, std::source_location at) {
  const unsigned self = place.thread_index.x;
  Thread& thread = threads_[self];
  Fiber& own = *running_;
  thread.state = state;
  thread.at = at;
  thread.fiber = &own;
  if (state == State::waits_for_warp) arrive_at_warp(self / warp_size());
  Fiber& other = next();
  running_ = &other;
  if (&other != &own) other.switch_from(own);
  thread.state = State::running;
  place.thread_index.x = self;
}

std::uint64_t Block::exchange(std::uint64_t value, unsigned from, std::source_location at) {
  Thread& self = threads_[place.thread_index.x];
  const unsigned slot = self.exchanges++ % 2;
  self.given[slot] = value;
  wait(State::waits_for_warp, at);
  return threads_[std::min<std::size_t>(from, threads_.size() - 1)].given[slot];
}

// A warp continues as soon as it is complete, so that the first threads run as far ahead of the others as barriers allow: a
// missing barrier becomes visible.
void Block::arrive_at_warp(unsigned warp) {
  const auto begin = warp * warp_size();
  const auto end = std::min(begin + warp_size(), static_cast<unsigned>(threads_.size()));
  if (++at_warp_[warp] == end - begin && release_if_all(State::waits_for_warp, begin, end)) at_warp_[warp] = 0;
}

// Called when no thread can run: opens the block's barrier. False if all threads have ended.
bool Block::release() {
  if (release_if_all(State::waits_for_block, 0, static_cast<unsigned>(threads_.size()))) return true;
  if (std::all_of(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.state == State::ended; })) {
    return false;
  }
  report();
}

bool Block::release_if_all(State waiting, unsigned begin, unsigned end) {
  const Thread& first = threads_[begin];
  for (unsigned i = begin; i < end; ++i) {
    if (threads_[i].state != waiting || !same_place(threads_[i].at, first.at)) return false;
  }
  for (unsigned i = begin; i < end; ++i) {
    threads_[i].state = State::ready;
    ready_.insert(ranks_[i]);
  }
  return true;
}

void Block::report() {
  const auto waits = [](const Thread& thread) { return thread.state != State::ended; };
  const auto index = [&](auto thread) { return thread - threads_.begin(); };
  const auto one = std::find_if(threads_.begin(), threads_.end(), waits);
  const bool of_warp = one->state == State::waits_for_warp;
  const auto first = of_warp ? threads_.begin() + index(one) / warp_size() * warp_size() : threads_.begin();
  const auto last = of_warp ? std::min(first + warp_size(), threads_.end()) : threads_.end();
  const auto other = std::find_if(
      first, last, [&](const Thread& thread) { return thread.state != one->state || !same_place(thread.at, one->at); });
  throw Error(fmt::format("{}, block {}: thread {} waits at {} for threads that do not come: thread {} {}", kernel_, block_,
                          index(one), name_of(one->at), index(other),
                          waits(*other) ? "waits at " + name_of(other->at) : "has ended"));
}

std::vector<unsigned> order_of(unsigned threads) {
  std::vector<unsigned> order(threads);
  std::iota(order.begin(), order.end(), 0U);
  if (schedule == Schedule::descending) std::reverse(order.begin(), order.end());
  if (schedule == Schedule::shuffled) std::shuffle(order.begin(), order.end(), std::mt19937(schedule_seed));
  return order;
}

}  // namespace

void set_warp_size(unsigned threads) noexcept { threads_of_warp = threads; }

unsigned warp_size() noexcept { return threads_of_warp; }

Place& here() noexcept { return current->place; }

void set_schedule(Schedule chosen, unsigned seed) noexcept {
  schedule = chosen;
  schedule_seed = seed;
}

void run(const char* kernel, unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  if (blocks == 0 || threads == 0 || threads > 1024) {
    throw Error(fmt::format("{} cannot be launched with {} blocks of {} threads", kernel, blocks, threads));
  }
  if (current == nullptr) current = std::make_unique<Block>();
  const std::vector<unsigned> order = order_of(threads);
  current->place.block_size.x = threads;
  current->place.grid_size.x = blocks;
  try {
    for (unsigned block = 0; block < blocks; ++block) {
      current->place.block_index.x = block;
      current->run(kernel, block, thread, order);
    }
  } catch (...) {
    current = nullptr;  // suspended threads, and their fibers
    throw;
  }
}

void wait_for_block(std::source_location at) { current->wait(State::waits_for_block, at); }

std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, unsigned from, std::source_location at) {
  if (mask != 0xffffffff) throw Error(name_of(at) + ": only whole warps exchange values here");
  return current->exchange(value, from, at);
}

namespace {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint32_t bytes = 0;
};
struct CopyBarrier {
  unsigned completed = 0;    // phases
  std::vector<Copy> copies;  // of the next ones
};
thread_local std::map<const std::uint64_t*, CopyBarrier> copy_barriers;

}  // namespace

void init_barriers(std::uint64_t* barriers, unsigned n) {
  for (unsigned i = 0; i < n; ++i) copy_barriers[barriers + i] = {};
}

void start_copy(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  for (const std::uintptr_t each : {reinterpret_cast<std::uintptr_t>(to),
                                    reinterpret_cast<std::uintptr_t>(bytes > 0 ? from : nullptr), std::uintptr_t{bytes}}) {
    if (each % 16 != 0) throw Error(fmt::format("a bulk copy of {} bytes from {} to {} is not aligned to 16", bytes, from, to));
  }
  CopyBarrier& at = copy_barriers.at(barrier);
  if (!at.copies.empty()) throw Error("a bulk copy is started while another one of its barrier was not waited for");
  if (schedule == Schedule::ascending && bytes > 0) std::memcpy(to, from, bytes);
  at.copies.push_back({to, from, bytes});
}

void wait_for_copy(std::uint64_t* barrier, std::uint32_t parity) {
  CopyBarrier& at = copy_barriers.at(barrier);
  if (at.completed % 2 != parity) return;
  if (at.copies.empty())
    throw Error(fmt::format("thread {} waits for a bulk copy that nobody has started", here().thread_index.x));
  const Copy copy = at.copies.front();
  at.copies.clear();
  ++at.completed;
  if (schedule != Schedule::ascending && copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
}

void check_alignment(const void* address, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
  throw Error(fmt::format("thread {} of block {} accesses {} bytes at {}, which is not aligned", here().thread_index.x,
                          here().block_index.x, alignment, address));
}

}  // namespace simt
