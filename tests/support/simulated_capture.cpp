// CUDA graphs: a capture records the calls, a replay makes them again.
#include "common/error.hpp"
#include "support/simulated_streams_inner.hpp"

namespace tnt::testing {

void SimulatedStreams::refuse_captured(const Stream& stream, const char* what) {
  if (stream.capture == nullptr) return;
  const std::string message =
      fmt::format("{} is being captured and was {} (cudaErrorStreamCaptureUnsupported)", stream.name, what);
  add_report(message);
  throw Error(TNT_SYSTEM, message);
}

void SimulatedStreams::begin_capture(StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  refuse_captured(*stream, "to be captured again");
  stream->capture = std::make_shared<Capture>();
  (void)stream->capture->part_of(stream);
}

std::shared_ptr<SimulatedStreams::Capture> SimulatedStreams::end_capture(StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  const auto capture = stream->capture;
  if (capture == nullptr || capture->parts[0].stream != stream) {
    fail(TNT_SYSTEM, "no capture began on {}", stream->name);
  }
  capture->ended = true;
  for (const Capture::Part& part : capture->parts) part.stream->capture = nullptr;
  for (const Capture::Part& part : capture->parts) {
    if (capture->parts[0].clock.of(part.stream->component) >= part.tick) continue;
    const std::string message = fmt::format(
        "the capture on {} ended, but {} has not come back to it: wait for an event of it "
        "(cudaErrorStreamCaptureUnjoined)",
        stream->name, part.stream->name);
    add_report(message);
    throw Error(TNT_SYSTEM, message);
  }
  return capture;
}

void SimulatedStreams::replay(const std::shared_ptr<Capture>& graph, StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  refuse_captured(*stream, "given a graph");
  stream->history.emplace_back("graph");
  graph->parts[0].replayed_on = stream;
  std::map<std::shared_ptr<Moment>, std::shared_ptr<Moment>> moments;  // of this replay
  for (const Capture::Call& call : graph->calls) {
    auto& to = graph->part_of(call.stream).replayed_on;
    if (to == nullptr) to = new_stream(call.stream->name + " of a graph");
    Step step = call.step;
    if (step.reaches != nullptr) step.reaches = moments[step.reaches] = std::make_shared<Moment>();
    if (step.awaits != nullptr) step.awaits = moments.at(step.awaits);
    put_now(*to, std::move(step));
  }
}

void SimulatedStreams::keep_in_graph(StreamHandle handle, std::shared_ptr<void> object) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  if (stream->capture == nullptr) fail(TNT_SYSTEM, "{} is not being captured", stream->name);
  stream->capture->kept.push_back(std::move(object));
}

bool SimulatedStreams::capturing(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  return find(stream)->capture != nullptr;
}

bool SimulatedStreams::any_capture() {
  const std::scoped_lock lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->capture != nullptr) return true;
  }
  return false;
}

}  // namespace tnt::testing
