// The part of CUDA's language that the kernels use, on the CPU: the same .cu sources are compiled by the tests' compiler and
// run, one block after another and the threads of a block in turn. Neither a GPU nor a second source is needed. This tests the
// arithmetic, the indices and the barriers, but not speed or the memory model. Misuse throws simt::Error. Thread-safe: every
// host thread has its own blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local  // the blocks of one host thread run one after another

namespace simt {

class Error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Index {
  unsigned x = 0;
};

// The position of the running thread.
struct Place {
  Index thread_index;
  Index block_index;
  Index block_size;
  Index grid_size;
};
[[nodiscard]] Place& here() noexcept;

// Runs `blocks` blocks of `threads` threads of the kernel. Throws if threads wait for others that have ended or wait elsewhere.
void run(const char* kernel, unsigned blocks, unsigned threads, const std::function<void()>& thread);

// The order in which the threads of a block run, at the start and after each wait; correct kernels do not depend on it. For
// this host thread.
enum class Schedule { ascending, descending, shuffled };
void set_schedule(Schedule schedule, unsigned seed = 0) noexcept;

// How many threads exchange values at once: 32, as NVIDIA's, or 64, as many of AMD's. For this host thread, between runs.
void set_warp_size(unsigned threads) noexcept;
[[nodiscard]] unsigned warp_size() noexcept;

// The running thread waits until all threads of its block have made the same call.
void wait_for_block(std::source_location at);

// Throws unless the address is aligned for T, which a GPU requires for every access.
void check_alignment(const void* address, std::size_t alignment);
template <typename T>
[[nodiscard]] T& checked(T* address) {
  check_alignment(address, alignof(T));
  return *address;
}

// The running thread gives a value to its warp and gets the value of thread `from` of its block. The warp waits.
[[nodiscard]] std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, unsigned from, std::source_location at);

// Bulk copies and their barriers, in the order of one thread that starts them. The bytes arrive at once if threads run in
// ascending order, else when a thread waits for them, so that both a missing wait and a missing barrier become visible.
void init_barriers(std::uint64_t* barriers, unsigned n);
void start_copy(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier);
void wait_for_copy(std::uint64_t* barrier, std::uint32_t parity);

template <typename T>
[[nodiscard]] T shuffle_down(std::uint32_t mask, T value, unsigned delta, unsigned width, std::source_location at) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  const unsigned self = here().thread_index.x;
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, self % width + delta < width ? self + delta : self, at);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace simt

#define threadIdx (::simt::here().thread_index)
#define blockIdx (::simt::here().block_index)
#define blockDim (::simt::here().block_size)
#define gridDim (::simt::here().grid_size)

inline void __syncthreads(std::source_location at = std::source_location::current()) { simt::wait_for_block(at); }

template <typename T>
[[nodiscard]] T __shfl_down_sync(std::uint32_t mask, T value, unsigned delta, unsigned width = ::simt::warp_size(),
                                 std::source_location at = std::source_location::current()) {
  return simt::shuffle_down(mask, value, delta, width, at);
}

[[nodiscard]] inline std::uint32_t __funnelshift_r(std::uint32_t low, std::uint32_t high, std::uint32_t shift) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
