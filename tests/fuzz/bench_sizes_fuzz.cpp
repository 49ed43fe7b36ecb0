// The sizes of tnt-bench: lists, ranges and files of sizes. The first byte says which.
#include <sys/mman.h>
#include <unistd.h>

#include <sstream>

#include "base/file_descriptor.hpp"
#include "benchmarks/sizes.hpp"
#include "benchmarks/types.hpp"
#include "fuzz/fuzz.hpp"

namespace {

using tnt::bench::Failure;
using tnt::bench::Size;
using tnt::fuzz::require;

void check(const std::vector<Size>& sizes) {
  require(sizes.size() <= 10'001, "sizes are not endless");
  for (const Size& size : sizes) {
    require(size.bytes > 0, "sizes are above 0");
    require(tnt::bench::parse_size("-b", tnt::bench::format_size(size.bytes)) == size.bytes, "a size reads as it is written");
  }
}

std::vector<Size> from_file(const std::string& text) {
  const tnt::FileDescriptor file(::memfd_create("sizes", MFD_CLOEXEC));
  require(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "a file is written");
  return tnt::bench::parse_sizes("/proc/self/fd/" + std::to_string(file.get()), 4);
}

std::vector<Size> from_range(const std::string& text) {
  std::istringstream words(text);
  std::string begin;
  std::string end;
  std::string step;
  double factor = 0;
  std::size_t element = 0;
  words >> begin >> end >> step >> element;
  if (element < 1 || element > 8) element = 4;
  tnt::bench::Range range{.begin = tnt::bench::parse_size("-b", begin), .end = tnt::bench::parse_size("-e", end)};
  if (step.starts_with('x')) {
    std::istringstream(step.substr(1)) >> factor;
    if (!(factor > 1)) return {};  // refused before
    range.factor = factor;
  } else {
    range.step = tnt::bench::parse_size("-i", step);
  }
  return tnt::bench::sizes_of(range, element);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text = tnt::fuzz::text_of(data + 1, size - 1);
  try {
    if (data[0] == 'f') {
      check(from_file(text));
    } else if (data[0] == 'r') {
      check(from_range(text));
    } else if (text.find('/') == std::string::npos) {  // no file of the machine is read
      check(tnt::bench::parse_sizes(text, 4));
    }
  } catch (const Failure& failure) {
    require(failure.code() == 2, "wrong sizes end with code 2");
    tnt::fuzz::require_sentence(failure.what());
  }
  return 0;
}
