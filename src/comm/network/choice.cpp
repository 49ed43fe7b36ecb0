#include "comm/network/choice.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/median.hpp"
#include "comm/network/communicator.hpp"

namespace tnt {
namespace {

constexpr std::size_t kib = 1024;

// Calls of float32 on all ranks. Ranks agree on the results by our own algorithms, chosen by size.
class Measurement {
 public:
  Measurement(NetworkCommunicator& comm, double timeout, const char* detail)
      : comm_(comm), context_{.timeout = timeout, .detail = detail}, begin_(now_ns()) {}

  // Whether less time has passed on all ranks.
  [[nodiscard]] bool is_within(double seconds) {
    return largest_of_all(static_cast<double>(now_ns() - begin_) * 1e-9) < seconds;
  }

  // Whether a call takes less than `factor` of its time with `first` if it is made with `second`: the medians of so many calls,
  // in turn, each on the slowest rank. bytes: of each member's input. The choices are made when all ranks are there.
  template <typename First, typename Second>
  [[nodiscard]] bool second_is_faster(Call::Kind kind, std::size_t bytes, std::size_t times, double factor, const First& first,
                                      const Second& second) {
    std::vector<double> firsts;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < times; ++i) {
      firsts.push_back(nanoseconds(kind, bytes, first));
      seconds.push_back(nanoseconds(kind, bytes, second));
    }
    return largest_of_all(median(seconds)) < factor * largest_of_all(median(firsts));
  }

 private:
  template <typename Choose>
  [[nodiscard]] double nanoseconds(Call::Kind kind, std::size_t bytes, const Choose& choose) {
    const auto members = static_cast<std::size_t>(comm_.size());
    in_.resize(bytes / sizeof(float));
    out_.resize(kind == Call::all_gather ? in_.size() * members : in_.size());
    const std::size_t count = kind == Call::reduce_scatter ? in_.size() / members : in_.size();
    comm_.run({{.kind = Call::barrier}}, context_);
    choose();
    const std::int64_t begin = now_ns();
    comm_.run({{.kind = kind, .dtype = TNT_FLOAT32, .count = count}, in_.data(), out_.data()}, context_);
    const std::int64_t end = now_ns();
    comm_.take_native({});
    comm_.force({});
    return static_cast<double>(end - begin);
  }

  [[nodiscard]] double largest_of_all(double value) {
    comm_.run({{.kind = Call::all_reduce, .dtype = TNT_FLOAT64, .op = TNT_MAX, .count = 1}, &value, &value}, context_);
    return value;
  }

  NetworkCommunicator& comm_;
  CallContext context_;
  std::int64_t begin_;
  std::vector<float> in_;
  std::vector<float> out_;
};

std::string text_of(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} bytes", bytes);
}

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

std::optional<DoublingRange> measure_doubling(NetworkCommunicator& comm, double timeout) {
  const auto members = static_cast<std::size_t>(comm.size());
  if (members < 3 || comm.is_on_one_node()) return std::nullopt;
  constexpr double seconds = 0.1;  // for each border
  constexpr std::size_t times = 5;
  constexpr double clearly = 0.97;       // beyond noise
  constexpr std::size_t smallest = 512;  // bytes; below it messages cost the same whatever they hold
  // The last of the sizes at which `more` is not clearly faster than `less`, nor at any before it.
  const auto border = [&](std::size_t largest, AllReduceAlgorithm less, AllReduceAlgorithm more) {
    Measurement measurement(comm, timeout, "measuring all_reduce");
    std::size_t bytes = smallest;
    while (bytes <= largest && measurement.is_within(seconds)) {
      const bool is_beyond = measurement.second_is_faster(
          Call::all_reduce, bytes, times, clearly, [&] { comm.force({.all_reduce = less}); },
          [&] { comm.force({.all_reduce = more}); });
      if (is_beyond) break;
      bytes *= 2;
    }
    return bytes / 2;
  };
  const std::size_t most_gathered = std::min(4 * kib, CollectiveHandshake::max_gathered / members);
  const std::size_t gathered = border(most_gathered, AllReduceAlgorithm::gather, AllReduceAlgorithm::doubling);
  return DoublingRange{gathered < smallest ? std::min(gathered, default_doubling(members).above) : gathered,
                       border(32 * kib, AllReduceAlgorithm::doubling, beyond_doubling(members))};
}

// The choice for the last size holds for all larger ones.
NativeChoice measure_native(NetworkCommunicator& comm, double timeout) {
  constexpr double seconds = 0.8;
  constexpr double worth = 0.95;
  constexpr std::size_t smallest = kib;  // below it a choice is worth less than the measurement's noise
  constexpr std::size_t largest = 4096 * kib;
  constexpr std::pair<Call::Kind, double> parts[] = {
      {Call::all_reduce, 0.5}, {Call::reduce_scatter, 0.75}, {Call::all_gather, 1.0}};  // when each ends
  NativeChoice choice;
  Measurement measurement(comm, timeout, "measuring MPI's own collectives");
  for (const auto& [kind, end] : parts) {
    for (std::size_t bytes = smallest; bytes <= largest && measurement.is_within(seconds * end); bytes *= 4) {
      const std::size_t times = std::clamp<std::size_t>(256 * kib / bytes, 5, 25);
      const bool is_faster = measurement.second_is_faster(
          kind, bytes, times, worth, [] {}, [&] { comm.take_native(NativeChoice::everywhere()); });
      choice.set(kind, bytes, is_faster);
    }
  }
  return choice;
}

}  // namespace tnt
