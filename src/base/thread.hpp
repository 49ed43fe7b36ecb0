// Threads of the library: named, and deaf to signals, so that the host program's main thread gets them.
#pragma once

#include <functional>
#include <thread>

namespace tnt {

// name: at most 15 characters, shown by top and gdb.
[[nodiscard]] std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tnt
