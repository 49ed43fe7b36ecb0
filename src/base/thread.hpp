// Threads of the library: named, with all signals blocked, so that the main thread of the host program receives them.
#pragma once

#include <functional>
#include <thread>

namespace tnt {

// name: at most 15 characters; top and gdb show it. Throws TNT_SYSTEM if the system has no thread left.
[[nodiscard]] std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tnt
