// A thread that calls a function which waits, and is known to be inside it: it sleeps.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace tnt::testing {

class Asleep {
 public:
  // Returns when the thread sleeps inside `wait`.
  explicit Asleep(const std::function<void()>& wait)
      : thread_([this, wait] {
          id_ = static_cast<int>(syscall(SYS_gettid));
          wait();
        }) {
    for (int times = 0; times < 3; times = is_asleep() ? times + 1 : 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;
  ~Asleep() { thread_.join(); }

 private:
  [[nodiscard]] bool is_asleep() const {
    if (id_ == 0) return false;
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/stat");
    std::string text;
    std::getline(file, text);
    return text.find(") S ") != std::string::npos;
  }

  std::atomic<int> id_{0};
  std::thread thread_;
};

}  // namespace tnt::testing
