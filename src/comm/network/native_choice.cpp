#include "comm/network/native_choice.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "comm/network/network_communicator.hpp"

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
      : comm_(comm), context_{.timeout = timeout, .detail = "measuring MPI's own collectives"}, begin_(now_ns()) {}

  // Until the time is over on some rank; the choice for the last size holds for all larger ones.
  void run(Call::Kind kind, double until_seconds, NativeChoice& choice) {
    for (std::size_t bytes = smallest; bytes <= largest && elapsed() < until_seconds; bytes *= 4) {
      choice.set(kind, bytes, native_is_faster(kind, bytes));
    }
  }

 private:
  [[nodiscard]] double largest_of_all(double value) {
    const TensorView view{.in = &value, .out = &value, .count = 1};
    comm_.take_native({});
    comm_.all_reduce(FusedBuffer({&view, 1}, TNT_FLOAT64), TNT_MAX, context_);
    return value;
  }
  [[nodiscard]] double elapsed() { return largest_of_all(static_cast<double>(now_ns() - begin_) * 1e-9); }

  [[nodiscard]] bool native_is_faster(Call::Kind kind, std::size_t bytes) {
    const std::size_t times = std::clamp<std::size_t>((std::size_t{256} << 10) / bytes, 5, 25);
    std::vector<double> ours;
    std::vector<double> natives;
    for (std::size_t i = 0; i < times; ++i) {
      ours.push_back(one(kind, bytes, {}));
      natives.push_back(one(kind, bytes, NativeChoice::everywhere()));
    }
    return largest_of_all(median(natives)) < 0.95 * largest_of_all(median(ours));
  }

  // A call of kind with in: bytes of each member.
  [[nodiscard]] double one(Call::Kind kind, std::size_t bytes, const NativeChoice& choice) {
    const auto members = static_cast<std::size_t>(comm_.size());
    in_.resize(bytes / sizeof(float));
    out_.resize(kind == Call::all_gather ? in_.size() * members : in_.size());
    comm_.take_native({});
    comm_.barrier(context_);
    comm_.take_native(choice);
    const std::int64_t begin = now_ns();
    if (kind == Call::all_reduce) {
      const TensorView view{.in = in_.data(), .out = out_.data(), .count = in_.size()};
      comm_.all_reduce(FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, context_);
    } else if (kind == Call::reduce_scatter) {
      comm_.reduce_scatter(in_.data(), out_.data(), in_.size() / members, TNT_FLOAT32, TNT_SUM, context_);
    } else {
      comm_.all_gather(in_.data(), out_.data(), in_.size(), TNT_FLOAT32, context_);
    }
    return static_cast<double>(now_ns() - begin);
  }

  [[nodiscard]] static double median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  NetworkCommunicator& comm_;
  CallContext context_;
  std::int64_t begin_;
  std::vector<float> in_;
  std::vector<float> out_;
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
