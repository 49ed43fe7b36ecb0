// Data for the tests of reducers.
#pragma once

#include <fmt/core.h>

#include <array>
#include <random>
#include <vector>

#include "reducer/plan.hpp"
#include "support/array.hpp"

namespace tnt::testing {

// A model of random tensors, each rank's gradients in each step, and the expected sums.
class Model {
 public:
  explicit Model(unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t n = 1 + random() % 15;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t count = random() % 6 == 0 ? 0 : random() % (random() % 4 == 0 ? 90'000 : 900);
      const tnt_dtype_t dtype = random() % 4 == 0 ? TNT_FLOAT64 : TNT_FLOAT32;
      specs_.push_back({fmt::format("tensor {}", i), count, dtype});
    }
    threshold_ = std::array<std::size_t, 4>{0, 2'000, 100'000, 100'000'000}[random() % 4];
  }

  [[nodiscard]] std::size_t size() const { return specs_.size(); }
  [[nodiscard]] Plan plan() const { return {specs_, threshold_}; }
  [[nodiscard]] static int owner(std::size_t tensor, int ranks) { return static_cast<int>(tensor * 7 / 3) % ranks; }
  // Each sum is needed by the tensor's owner alone.
  [[nodiscard]] Plan plan_of_owners(int ranks) const {
    std::vector<TensorSpec> specs = specs_;
    for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) specs[tensor].owner = owner(tensor, ranks);
    return {specs, threshold_};
  }
  [[nodiscard]] Array gradient(int rank, unsigned step, std::size_t tensor) const {
    return exact_values(specs_[tensor].dtype, specs_[tensor].count,
                        static_cast<unsigned>(rank) + 8 * (step + 10 * static_cast<unsigned>(tensor)));
  }
  // The weight of a rank's samples; rank 1 has none in every third step.
  [[nodiscard]] static double scale(int rank, unsigned step) { return rank == 1 && step % 3 == 2 ? 0.0 : 0.25 * (rank + 1); }
  [[nodiscard]] Array sum(int ranks, unsigned step, std::size_t tensor) const {
    std::vector<Array> in;
    for (int rank = 0; rank < ranks; ++rank) in.push_back(gradient(rank, step, tensor));
    return testing::repeated(specs_[tensor].dtype, specs_[tensor].count, [&](std::size_t i) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += scale(rank, step) * in[static_cast<std::size_t>(rank)].get(i);
      return sum;
    });
  }

 private:
  std::vector<TensorSpec> specs_;
  std::size_t threshold_ = 0;
};

}  // namespace tnt::testing
