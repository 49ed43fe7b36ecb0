#include "benchmarks/sizes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "benchmarks/models.hpp"
#include "benchmarks/parsing.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t max_sizes = 10'000;
constexpr std::size_t max_steps = 1'000'000;  // of a range; several give one size if they are smaller than an element
constexpr std::string_view example = "not a size above 0, like 4, 1K, 64M or 1.5G";

// 0 for an unknown suffix. "K", "KB" and "KiB" are the same: sizes are binary, as in nccl-tests.
double unit(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  if (suffix == "k" || suffix == "m" || suffix == "g")
    return unit(std::string_view("KMG").substr(std::string_view("kmg").find(suffix), 1));
  const std::size_t power = std::string_view("KMGT").find(suffix.front());
  const std::string_view rest = suffix.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB")) return 0;
  return std::ldexp(1.0, 10 * static_cast<int>(power + 1));
}

void add(std::vector<Size>& sizes, Size size) {
  const auto same = [&size](const Size& other) { return other.bytes == size.bytes && other.label == size.label; };
  if (std::none_of(sizes.begin(), sizes.end(), same)) sizes.push_back(std::move(size));
}

std::vector<Size> sizes_of_model(const std::string& name, std::size_t element) {
  struct Tensors {
    std::string first;
    std::size_t number = 0;
  };
  std::map<std::size_t, Tensors> by_bytes;
  for (const ModelTensor& tensor : find_model(name, "--sizes @").tensors) {
    Tensors& tensors = by_bytes[tensor.count * element];
    if (tensors.number++ == 0) tensors.first = tensor.name;
  }
  std::vector<Size> sizes;
  for (const auto& [bytes, tensors] : by_bytes) {
    sizes.push_back({bytes, tensors.number == 1 ? tensors.first : fmt::format("{} (x{})", tensors.first, tensors.number)});
  }
  return sizes;
}

std::vector<Size> read_sizes(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse("--sizes", path, "neither sizes (1K,1M) nor @MODEL nor a file that can be read");
  std::vector<Size> sizes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string size;
    std::string label;
    if (!(words >> size)) continue;
    std::getline(words >> std::ws, label);
    label.erase(label.find_last_not_of(" \t\r") + 1);
    add(sizes, {parse_size(fmt::format("--sizes {} line {}:", path, number), size), label});
    if (sizes.size() > max_sizes) refuse("--sizes", path, fmt::format("more than {} sizes", max_sizes));
  }
  if (sizes.empty()) refuse("--sizes", path, "a file without sizes");
  return sizes;
}

}  // namespace

std::size_t parse_size(std::string_view flag, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc()) refuse(flag, text, example);
  const double bytes = value * unit({rest, static_cast<std::size_t>(end - rest)});
  if (!(bytes > 0)) refuse(flag, text, example);
  if (bytes > std::ldexp(1.0, 50)) refuse(flag, text, "above 1024T");
  if (bytes != std::floor(bytes)) refuse(flag, text, "not a whole number of bytes");
  return static_cast<std::size_t>(bytes);
}

std::string format_size(std::size_t bytes) {
  constexpr std::string_view suffixes = "KMGT";
  std::size_t shown = bytes;
  std::size_t power = 0;
  while (power < suffixes.size() && shown >= 1024 && shown % 1024 == 0) {
    shown /= 1024;
    ++power;
  }
  return power == 0 ? std::to_string(bytes) : fmt::format("{}{}", shown, suffixes[power - 1]);
}

std::vector<Size> sizes_of(const Range& range, std::size_t element) {
  std::vector<Size> sizes;
  auto exact = static_cast<double>(range.begin);
  for (std::size_t step = 0; exact <= static_cast<double>(range.end); ++step) {
    const std::size_t bytes = static_cast<std::size_t>(exact) / element * element;
    if (bytes > 0 && (sizes.empty() || sizes.back().bytes != bytes)) sizes.push_back({bytes, ""});
    if (sizes.size() > max_sizes || step == max_steps)
      throw Failure(fmt::format("more than {} sizes: take a larger -f or -i", max_sizes), 2);
    exact = range.step > 0 ? exact + static_cast<double>(range.step) : exact * range.factor;
  }
  return sizes;
}

std::vector<Size> parse_sizes(const std::string& text, std::size_t element) {
  if (text.starts_with('@')) return sizes_of_model(text.substr(1), element);
  if (text.empty() || (text.front() != '-' && (text.front() < '0' || text.front() > '9'))) return read_sizes(text);
  std::vector<Size> sizes;
  for (const std::string& part : split(text)) add(sizes, {parse_size("--sizes", part), ""});
  return sizes;
}

}  // namespace tnt::bench
