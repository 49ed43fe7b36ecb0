// Ranks compare their calls before a collective of tensors whose sizes may differ, or that has a name of the user's.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel.hpp"

namespace tnt_tensorflow {

enum class Kind : std::int32_t { all_reduce, all_gather, broadcast, all_to_all, reduce_scatter, gradients, join };

inline constexpr std::int64_t no_reducer = 0;  // the choice of gradients whose reducer is still to be made

inline constexpr std::size_t max_name = 96;  // bytes of a tensor's name, its terminating zero included

// One rank's call. Ranks exchange it as bytes, so it has no pointers, and its padding is zero.
struct Call {
  Kind kind = Kind::join;
  std::int32_t dtype = 0;   // of TensorFlow
  std::int64_t choice = 0;  // the operation, the root, or the gradients' reducer; of all_to_all: whether splits make no sense
  std::int64_t dimensions = 0;
  std::int64_t meetings = 0;  // of a rank that has joined: how often it has met the others since
  std::array<std::int64_t, 16> sizes{};
  std::array<char, max_name> name{};

  [[nodiscard]] std::int64_t rows() const { return dimensions == 0 ? 0 : sizes[0]; }
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t i = 0; i < dimensions; ++i) product *= sizes[static_cast<std::size_t>(i)];
    return product;
  }
};

// The call of a tensor of these dimensions.
[[nodiscard]] Call call_of(Kind kind, const TF_Tensor* tensor, const Dims& dims, std::int64_t choice,
                           const std::array<char, max_name>& name);

// All ranks' calls, by rank. Empty if the op has failed: a rank is missing, or the calls do not fit each other, which every
// rank sees alike, so that nothing else was sent. Ranks that have joined take part in sums, and in nothing else. Cost: an
// all_gather of sizeof(Call) bytes.
[[nodiscard]] std::vector<Call> meet(TF_OpKernelContext* context, tnt_comm_t comm, const Call& own);

}  // namespace tnt_tensorflow
