#include "simt/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {
namespace {

constexpr std::size_t stack_bytes = 128 * 1024;  // only pages that are used are allocated

thread_local Fiber* entered = nullptr;  // the fiber that is switched to

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void check(bool ok, const char* what) {
  if (!ok) throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Fiber::Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  check(pthread_getattr_np(pthread_self(), &attributes) == 0, "cannot ask for the thread's stack");
  pthread_attr_getstack(&attributes, &stack_, &bytes_);
  pthread_attr_destroy(&attributes);
#endif
#if defined(__SANITIZE_THREAD__)
  thread_state_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*body)()) : body_(body), bytes_(stack_bytes) {
  memory_ = mmap(nullptr, page_bytes() + bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  check(memory_ != MAP_FAILED, "cannot map a fiber's stack");
  check(mprotect(memory_, page_bytes(), PROT_NONE) == 0, "cannot protect the end of a fiber's stack");
  stack_ = static_cast<char*>(memory_) + page_bytes();
  check(getcontext(&context_) == 0, "cannot make a fiber");
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes_;
  makecontext(&context_, &Fiber::enter, 0);
#if defined(__SANITIZE_THREAD__)
  thread_state_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (memory_ == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, bytes_);  // it may not have run to its end
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(thread_state_);
#endif
  munmap(memory_, page_bytes() + bytes_);
}

void Fiber::enter() {
  entered->arrived();
  entered->body_();
}

void Fiber::switch_from(Fiber& from) {
  entered = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, stack_, bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(thread_state_, 0);
#endif
  swapcontext(&from.context_, &context_);
  from.arrived();
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace simt
