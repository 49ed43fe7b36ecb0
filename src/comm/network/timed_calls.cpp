#include "comm/network/timed_calls.hpp"

#include "base/clock.hpp"
#include "comm/network/communicator.hpp"

namespace tnt {

TimedCalls::TimedCalls(NetworkCommunicator& comm, double timeout, const char* detail)
    : comm_(comm), context_{.timeout = timeout, .detail = detail}, begin_(now_ns()) {}

double TimedCalls::largest_of_all(double value) {
  comm_.take_native({});
  comm_.run({{.kind = Call::all_reduce, .dtype = TNT_FLOAT64, .op = TNT_MAX, .count = 1}, &value, &value}, context_);
  return value;
}

double TimedCalls::elapsed() { return largest_of_all(static_cast<double>(now_ns() - begin_) * 1e-9); }

double TimedCalls::one(Call::Kind kind, std::size_t bytes, const std::function<void()>& choose) {
  const auto members = static_cast<std::size_t>(comm_.size());
  in_.resize(bytes / sizeof(float));
  out_.resize(kind == Call::all_gather ? in_.size() * members : in_.size());
  comm_.take_native({});
  comm_.run({{.kind = Call::barrier}}, context_);
  choose();
  const std::int64_t begin = now_ns();
  const std::size_t count = kind == Call::reduce_scatter ? in_.size() / members : in_.size();
  comm_.run({{.kind = kind, .dtype = TNT_FLOAT32, .count = count}, in_.data(), out_.data()}, context_);
  return static_cast<double>(now_ns() - begin);
}

}  // namespace tnt
