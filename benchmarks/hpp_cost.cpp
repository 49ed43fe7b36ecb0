// What tarantella.hpp costs a small collective: all_reduce of 64 bytes, in turn through tarantella.h and through
// tarantella.hpp, on one communicator.
//
//     tarantella -n 2 -- hpp_cost [ROUNDS] [CALLS]
//
// The control compares the C functions with themselves: it shows what the machine does by itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <tarantella/tarantella.hpp>

namespace {

using Buffer = std::array<float, 16>;

template <typename Call>
double ns_per_call(int calls, const Call& call) {
  for (int i = 0; i < 50; ++i) call();
  const std::int64_t begin = tnt_clock_ns();
  for (int i = 0; i < calls; ++i) call();
  return static_cast<double>(tnt_clock_ns() - begin) / calls;
}

void print_median(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto margin = static_cast<std::size_t>(0.98 * std::sqrt(values.size()));  // of the median's 95 % confidence interval
  const std::size_t middle = values.size() / 2;
  std::printf("%-20s %9.4f  [%.4f, %.4f]\n", what, values[middle], values[middle - margin], values[middle + margin]);
}

void measure(int rounds, int calls) {
  const tarantella::Job job;
  const auto world = tarantella::Comm::world();
  const Buffer in{1};
  Buffer out{};
  const auto by_c = [&] {
    tarantella::check(tnt_all_reduce(world.get(), in.data(), out.data(), in.size(), TNT_FLOAT32, TNT_SUM, nullptr, nullptr));
  };
  const auto by_hpp = [&] { world.all_reduce(in, out); };
  std::vector<double> c;
  std::vector<double> hpp;
  std::vector<double> ratio;
  std::vector<double> control;
  for (int round = -10; round < rounds; ++round) {
    std::array<double, 4> ns{};  // C, C++, C, C++; every second round in the other order
    for (std::size_t i = 0; i < ns.size(); ++i) {
      const std::size_t which = round % 2 == 0 ? i : ns.size() - 1 - i;
      ns[which] = which % 2 == 0 ? ns_per_call(calls, by_c) : ns_per_call(calls, by_hpp);
    }
    if (round < 0) continue;
    c.push_back((ns[0] + ns[2]) / 2);
    hpp.push_back((ns[1] + ns[3]) / 2);
    ratio.push_back(hpp.back() / c.back());
    control.push_back(ns[0] / ns[2]);
  }
  if (world.rank() != 0) return;
  std::printf("%d ranks, medians of %d rounds of %d calls, and 95 %% intervals\n", world.size(), rounds, calls);
  print_median("tarantella.h, ns", std::move(c));
  print_median("tarantella.hpp, ns", std::move(hpp));
  print_median("hpp / h", std::move(ratio));
  print_median("control, h / h", std::move(control));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 400;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 2000;
  if (rounds < 10 || calls < 1) {
    std::fprintf(stderr, "ROUNDS >= 10 and CALLS >= 1, please\n");
    return 1;
  }
  try {
    measure(rounds, calls);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
