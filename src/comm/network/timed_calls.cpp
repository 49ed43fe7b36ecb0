#include "comm/network/timed_calls.hpp"

#include "base/clock.hpp"
#include "comm/network/communicator.hpp"

namespace tnt {

TimedCalls::TimedCalls(NetworkCommunicator& comm, double timeout, const char* detail)
    : comm_(comm), context_{.timeout = timeout, .detail = detail}, begin_(now_ns()) {}

double TimedCalls::largest_of_all(double value) {
  const TensorView view{.in = &value, .out = &value, .count = 1};
  comm_.take_native({});
  comm_.all_reduce(FusedBuffer({&view, 1}, TNT_FLOAT64), TNT_MAX, context_);
  return value;
}

double TimedCalls::elapsed() { return largest_of_all(static_cast<double>(now_ns() - begin_) * 1e-9); }

double TimedCalls::one(Call::Kind kind, std::size_t bytes, const std::function<void()>& choose) {
  const auto members = static_cast<std::size_t>(comm_.size());
  in_.resize(bytes / sizeof(float));
  out_.resize(kind == Call::all_gather ? in_.size() * members : in_.size());
  comm_.take_native({});
  comm_.barrier(context_);
  choose();
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

}  // namespace tnt
