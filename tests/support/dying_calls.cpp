// The program's own definitions of these functions take the place of the C library's, for the library as well.
#include "support/dying_calls.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>

namespace tnt::testing {
namespace {

constexpr int never = -1;
std::atomic<int> calls_left{never};

void note_call() noexcept {
  int left = calls_left;
  while (left > 0 && !calls_left.compare_exchange_weak(left, left - 1)) continue;
  if (left == 0) (void)::kill(::getpid(), SIGKILL);
}

template <typename Function>
Function* original(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

void die_before_call(int number) noexcept { calls_left = number; }
void live_on() noexcept { calls_left = never; }

}  // namespace tnt::testing

#define TNT_PASS_ON(name, ...)                                                   \
  static auto* const original = tnt::testing::original<decltype(::name)>(#name); \
  tnt::testing::note_call();                                                     \
  return original(__VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {
int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  TNT_PASS_ON(accept4, socket, address, length, flags);
}
int close(int descriptor) { TNT_PASS_ON(close, descriptor); }
int connect(int socket, const sockaddr* address, socklen_t length) { TNT_PASS_ON(connect, socket, address, length); }
int epoll_ctl(int epoll, int op, int descriptor, epoll_event* event) noexcept {
  TNT_PASS_ON(epoll_ctl, epoll, op, descriptor, event);
}
int ftruncate(int descriptor, off_t bytes) noexcept { TNT_PASS_ON(ftruncate, descriptor, bytes); }
int memfd_create(const char* name, unsigned int flags) noexcept { TNT_PASS_ON(memfd_create, name, flags); }
ssize_t recv(int socket, void* data, size_t bytes, int flags) { TNT_PASS_ON(recv, socket, data, bytes, flags); }
ssize_t recvmsg(int socket, msghdr* message, int flags) { TNT_PASS_ON(recvmsg, socket, message, flags); }
ssize_t sendmsg(int socket, const msghdr* message, int flags) { TNT_PASS_ON(sendmsg, socket, message, flags); }
long syscall(long number, ...) noexcept {
  va_list all;
  va_start(all, number);
  std::array<long, 6> words{};
  for (long& word : words) word = va_arg(all, long);
  va_end(all);
  TNT_PASS_ON(syscall, number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
int shutdown(int socket, int how) noexcept { TNT_PASS_ON(shutdown, socket, how); }
}
#pragma GCC visibility pop
