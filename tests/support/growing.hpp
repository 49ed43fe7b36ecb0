// For tests of tnt_comm_grow and tnt_comm_shrink: processes that are members or newcomers, and how they pass on ids.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "tarantella/tarantella.h"

namespace tnt::testing {

inline std::string said() { return tnt_last_error(); }

// What the program passes on by means of its own.
struct Letters {
  std::array<tnt_unique_id_t, 4> ids{};
  std::atomic<int> n_ids{0};
  std::atomic<int> step{0};
};

inline void put_id(Letters& letters, const std::string& rendezvous = "") {
  check(tnt_unique_id(rendezvous.empty() ? nullptr : rendezvous.c_str(), &letters.ids.at(letters.n_ids)));
  ++letters.n_ids;
}

inline const tnt_unique_id_t* take_id(const Letters& letters, int index = 0) {
  wait_for([&] { return letters.n_ids > index; });
  return &letters.ids.at(static_cast<std::size_t>(index));
}

// The place of this process before it joins: one of the first ranks of a job, or a job by itself.
inline void be_member(int members) { setenv("TNT_SIZE", std::to_string(members).c_str(), 1); }
inline void be_alone() {
  for (const char* name : {"TNT_RANK", "TNT_SIZE", "TNT_RENDEZVOUS", "TNT_TOKEN"}) unsetenv(name);
}

inline std::vector<int> numbers_of(tnt_comm_t comm, int own) {
  int size = 0;
  check(tnt_comm_size(comm, &size));
  std::vector<int> all(static_cast<std::size_t>(size));
  check(tnt_all_gather(comm, &own, all.data(), 1, TNT_INT32, nullptr, nullptr));
  return all;
}

inline std::vector<int> first_numbers(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Those that this process has open.
inline int descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

inline int rank_of(tnt_comm_t comm) {
  int rank = -1;
  check(tnt_comm_rank(comm, &rank));
  return rank;
}

inline std::string transport_name_of(tnt_comm_t comm) {
  const char* name = nullptr;
  check(tnt_comm_transport(comm, &name));
  return name;
}

// A step of a reducer of the communicator.
inline void expect_a_step(tnt_comm_t comm, int size) {
  const tnt_tensor_t tensor{"weights", 1000, TNT_FLOAT32};
  tnt_reducer_t reducer = nullptr;
  check(tnt_reducer_create(comm, &tensor, 1, nullptr, &reducer));
  std::vector<float> gradient(1000, 1);
  check(tnt_reducer_ready(reducer, 0, gradient.data(), gradient.data(), 1, nullptr));
  check(tnt_reducer_finish(reducer, nullptr));
  EXPECT_EQ(gradient.back(), static_cast<float>(size));
  check(tnt_reducer_destroy(reducer));
}

}  // namespace tnt::testing
