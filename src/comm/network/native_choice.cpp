#include "comm/network/native_choice.hpp"

#include <algorithm>
#include <vector>

#include "base/median.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/timed_calls.hpp"

namespace tnt {
namespace {

constexpr double seconds_for_all = 0.8;
constexpr std::size_t smallest = 1024;  // bytes; below it a choice is worth less than the measurement's noise
constexpr std::size_t largest = std::size_t{4} * 1024 * 1024;

std::string text_of(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} bytes", bytes);
}

class Measurement {
 public:
  Measurement(NetworkCommunicator& comm, double timeout)
      : comm_(comm), calls_(comm, timeout, "measuring MPI's own collectives") {}

  // Until the time is over on some rank; the choice for the last size holds for all larger ones.
  void run(Call::Kind kind, double until_seconds, NativeChoice& choice) {
    for (std::size_t bytes = smallest; bytes <= largest && calls_.elapsed() < until_seconds; bytes *= 4) {
      choice.set(kind, bytes, native_is_faster(kind, bytes));
    }
  }

 private:
  [[nodiscard]] bool native_is_faster(Call::Kind kind, std::size_t bytes) {
    const std::size_t times = std::clamp<std::size_t>((std::size_t{256} << 10) / bytes, 5, 25);
    std::vector<double> ours;
    std::vector<double> natives;
    for (std::size_t i = 0; i < times; ++i) {
      ours.push_back(calls_.one(kind, bytes, [] {}));
      natives.push_back(calls_.one(kind, bytes, [this] { comm_.take_native(NativeChoice::everywhere()); }));
    }
    return calls_.largest_of_all(median(natives)) < 0.95 * calls_.largest_of_all(median(ours));
  }

  NetworkCommunicator& comm_;
  TimedCalls calls_;
};

}  // namespace

std::string NativeChoice::describe() const {
  std::string text;
  for (const Call::Kind kind : {Call::all_reduce, Call::reduce_scatter, Call::all_gather}) {
    const auto& taken = taken_[kind];
    for (std::size_t i = 0; i < sizes; ++i) {
      if (!taken[i] || (i > 0 && taken[i - 1])) continue;
      const auto* const end = std::find(taken.begin() + static_cast<std::ptrdiff_t>(i), taken.end(), false);
      const std::string to =
          end == taken.end() ? "" : " to " + text_of(std::size_t{1} << static_cast<std::size_t>(end - taken.begin() - 1));
      text += fmt::format("{}{} from {}{}", text.empty() ? "" : ", ", kind_name(kind),
                          text_of(i == 0 ? 0 : std::size_t{1} << (i - 1)), to);
    }
  }
  return text.empty() ? "none" : text;
}

NativeChoice measure_native(NetworkCommunicator& comm, double timeout) {
  NativeChoice choice;
  Measurement measurement(comm, timeout);
  measurement.run(Call::all_reduce, seconds_for_all / 2, choice);
  measurement.run(Call::reduce_scatter, seconds_for_all * 3 / 4, choice);
  measurement.run(Call::all_gather, seconds_for_all, choice);
  return choice;
}

}  // namespace tnt
