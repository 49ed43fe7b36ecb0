// The C functions of group calls.
#include "api/call_group.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <vector>

namespace tnt {
namespace {

// The calls with streams of one communicator.
struct OnDevices {
  tnt_comm* comm;
  std::shared_ptr<DeviceCollectives> devices;
  std::vector<StreamHandle> streams = {};
  std::vector<const Collective*> collectives = {};
  std::vector<Message> upward = {};
  std::vector<Message> downward = {};

  void add(const Collective& call, StreamHandle stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    if (!is_message(call.kind)) {
      collectives.push_back(&call);
    } else {
      (lane_of(call, comm->communicator->rank()) == Lane::upward ? upward : downward).push_back(message_of(call));
    }
  }
};

// On each communicator: its collectives in order, then its messages.
std::vector<LaneOperations> operations_of(const std::list<OnDevices>& all) {
  std::vector<LaneOperations> operations;
  const auto exchange = [&](const OnDevices& each, Lane lane, const std::vector<Message>& messages) {
    if (messages.empty()) return;
    operations.push_back({each.devices.get(), lane, each.streams,
                          [&messages](DeviceCommunicator& devices) { devices.exchange(messages, "in a group"); }});
  };
  for (const OnDevices& each : all) {
    if (!each.collectives.empty()) {
      operations.push_back({each.devices.get(), Lane::collectives, each.streams, [&each](DeviceCommunicator& devices) {
                              for (const Collective* call : each.collectives) each.devices->run(devices, *call);
                            }});
    }
    exchange(each, Lane::upward, each.upward);
    exchange(each, Lane::collectives, each.downward);
  }
  return operations;
}

}  // namespace

CallGroup& CallGroup::of_thread() noexcept {
  thread_local CallGroup instance;
  return instance;
}

CallGroup::~CallGroup() {
  if (depth_ > 0) --open_groups;
}

void CallGroup::set_failure(const Error& error) {
  if (!failure_) failure_ = error;
  calls_.clear();
}

void CallGroup::add(tnt_comm_t comm, const Collective& call, StreamHandle stream, const tnt_work_t* work) {
  const CancellationDeferral deferral;
  try {
    if (work != nullptr) fail(TNT_INVALID_ARGUMENT, "work must be NULL in a group: tnt_group_end waits for its operations");
    std::list<Kept> one;
    Kept& kept = one.emplace_back(comm);
    kept.call = call;
    kept.counts = check_arguments(*kept.on->communicator, kept.call);
    kept.stream = stream;
    if (!failure_) calls_.splice(calls_.end(), one);
  } catch (const Error& error) {
    set_failure(error);
    throw;
  }
}

void CallGroup::start() {
  (void)Runtime::get();
  if (depth_++ == 0) ++open_groups;
}

void CallGroup::end() {
  if (depth_ == 0) fail(TNT_INVALID_ARGUMENT, "tnt_group_end without a tnt_group_start in this thread");
  if (--depth_ > 0) return;
  --open_groups;
  const std::list<Kept> calls = std::exchange(calls_, {});
  if (const auto failure = std::exchange(failure_, std::nullopt)) throw Error(*failure);
  enqueue_on_devices(calls);
  run_on_host(calls);
}

// Communicators whose devices are not connected yet are connected in the order in which they first appear.
void CallGroup::enqueue_on_devices(const std::list<Kept>& calls) {
  std::list<OnDevices> all;
  for (const Kept& kept : calls) {
    const StreamHandle stream = kept.stream;
    if (stream == nullptr) continue;
    tnt_comm* const comm = &*kept.on;
    auto found = std::find_if(all.begin(), all.end(), [&](const OnDevices& each) { return each.comm == comm; });
    if (found == all.end()) {
      auto devices = connected_devices(*comm, [&] { return device_of_stream(stream); });
      found = all.insert(all.end(), {.comm = comm, .devices = std::move(devices)});
    }
    found->add(kept.call, stream);
  }
  DeviceCollectives::enqueue_together(operations_of(all));
}

// The last one runs in this thread. An executor runs its operations in order, and executors do not wait for each other.
void CallGroup::run_on_host(const std::list<Kept>& calls) {
  std::vector<const Kept*> all;
  for (const Kept& kept : calls) {
    if (kept.stream == nullptr) all.push_back(&kept);
  }
  if (all.empty()) return;
  const auto operation = [](const Kept& kept) {
    return [&kept] { kept.on->communicator->run(kept.call, Runtime::get().context(*kept.on)); };
  };
  std::vector<std::shared_ptr<Work>> started;
  std::exception_ptr last_failure;
  try {
    for (const Kept* kept : std::span(all).first(all.size() - 1)) {
      started.push_back(kept->on->executor_of(kept->call).start(operation(*kept)));
    }
    all.back()->on->executor_of(all.back()->call).run(operation(*all.back()));
  } catch (...) {  // what was started still uses the calls and their buffers
    last_failure = std::current_exception();
  }
  std::exception_ptr failure;
  for (const auto& work : started) {
    try {
      (void)work->wait(-1);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (!failure) failure = last_failure;
  if (failure) std::rethrow_exception(failure);
}

void refuse_in_group(const char* function) {
  if (!CallGroup::is_open()) return;
  fail(TNT_INVALID_ARGUMENT, "{} cannot stand between tnt_group_start and tnt_group_end: call it before or after the group",
       function);
}

}  // namespace tnt

using namespace tnt;

extern "C" {

tnt_status_t tnt_group_start(void) {
  return guarded([] { CallGroup::of_thread().start(); });
}

tnt_status_t tnt_group_end(void) {
  return guarded([] { CallGroup::of_thread().end(); });
}

}  // extern "C"
