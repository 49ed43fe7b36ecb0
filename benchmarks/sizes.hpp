// The sizes to measure: ranges as in nccl-tests, lists, a model's gradients, files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// "4", "1K", "64M", "1.5G": binary suffixes, whole numbers of bytes. flag: for the error message.
[[nodiscard]] std::size_t parse_size(std::string_view flag, const std::string& text);

[[nodiscard]] std::string format_size(std::size_t bytes);  // "64M"; "1000" if it is not a round number

// From begin to end, including end if a step reaches it. Exactly one of factor and step is above 0. Sizes in between are
// rounded down to a multiple of element.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  double factor = 0;
  std::size_t step = 0;
};
[[nodiscard]] std::vector<Size> sizes_of(const Range& range, std::size_t element);

// The argument of --sizes: "1K,1M"; or "@resnet50" for the distinct sizes of its gradients, ascending, in elements of this many
// bytes; or a file with one size in each line, an optional label after it, and comments after #.
[[nodiscard]] std::vector<Size> parse_sizes(const std::string& text, std::size_t element);

}  // namespace tnt::bench
