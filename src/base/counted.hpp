// Counts how many threads are in a scope.
#pragma once

#include <atomic>

#include "common/non_copyable.hpp"

namespace tnt {

class Counted : NonCopyable {
 public:
  explicit Counted(std::atomic<int>& number) noexcept : number_(number) { ++number_; }
  ~Counted() { --number_; }

 private:
  std::atomic<int>& number_;
};

}  // namespace tnt
