// Functions that can be suspended and resumed: one stack each, one host thread. The sanitizers are informed.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace simt {

// The host thread's own stack, or a fiber's.
class Fiber {
 public:
  Fiber();                         // the running stack
  explicit Fiber(void (*body)());  // a new one; body never returns
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Suspends `from`, which runs, and continues this one, until somebody switches back.
  void switch_from(Fiber& from);

 private:
  static void enter();
  void arrived();

  ucontext_t context_{};
  void (*body_)() = nullptr;
  void* memory_ = nullptr;  // a guard page and the stack
  void* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* fake_stack_ = nullptr;    // the address sanitizer's
  void* thread_state_ = nullptr;  // the thread sanitizer's
};

}  // namespace simt
