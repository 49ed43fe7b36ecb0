// Which sizes are measured: ranges as nccl-tests has them, lists, a model's gradients, files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// "4", "1K", "64M", "1.5G": binary suffixes, whole numbers of bytes. flag: what the refusal names.
[[nodiscard]] std::size_t parse_size(std::string_view flag, const std::string& text);

[[nodiscard]] std::string format_size(std::size_t bytes);  // "64M"; "1000" for what is no round number

// From begin to end, end included if a step meets it. Exactly one of factor and step is above 0. Sizes between are rounded
// down to a multiple of element.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  double factor = 0;
  std::size_t step = 0;
};
[[nodiscard]] std::vector<Size> sizes_of(const Range& range, std::size_t element);

// The argument of --sizes: "1K,1M"; "@resnet50": the different sizes of its gradients, ascending, in elements of so many
// bytes; or a file with a size in each line, perhaps a label behind it, and comments behind #.
[[nodiscard]] std::vector<Size> parse_sizes(const std::string& text, std::size_t element);

}  // namespace tnt::bench
