// CMake links this program with fmt.cpp (fmt.cmake) to check that every format we use is instantiated.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  const std::string_view name = argv[0];
  const std::vector<int> numbers(3, argc);
  std::string text = fmt::format("{} {:>8} {:#x} {:p}", name, argc, argc, static_cast<const void*>(argv));
  text += fmt::format("{} {:.3g} {:.2f} {} {:L} {:L}", 1.0 * argc, 1.0 * argc, 1.0 * argc, 1.0F * argc, argc, 1.0 * argc);
  text += fmt::format("{} {} {} {:c} {}", numbers, fmt::join(numbers, ", "), argc > 1, 'x', 1ULL * argc);
  text += fmt::format(fmt::runtime(name), argc);
  fmt::format_to(std::back_inserter(text), "{:{}}", argc, argc);
  fmt::print("{}\n", text);
  fmt::print(stderr, "{}\n", text);
}
