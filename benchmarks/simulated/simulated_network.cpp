#include "benchmarks/simulated/simulated_network.hpp"

#include <simgrid/s4u/Actor.hpp>

#include "comm/network/messages/exchange.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

void check(int status, const char* call) {
  if (status != MPI_SUCCESS) fail(TNT_SYSTEM, "SimGrid: {} failed with status {}", call, status);
}

bool is_data(int tag) {
  const int kind = (tag - 1) % NetworkWorld::tags_per_communicator;
  return tag > 0 && (kind == scatter_tag || kind == gather_tag);
}

class SimulatedRequest final : public Request {
 public:
  SimulatedRequest(std::shared_ptr<void> memory, bool incoming) : memory_(std::move(memory)), incoming_(incoming) {}

  ~SimulatedRequest() override {
    if (handle == MPI_REQUEST_NULL) return;
    if (incoming_) MPI_Cancel(&handle);
    MPI_Request_free(&handle);
  }

  [[nodiscard]] bool test() override {
    int done = 0;
    if (handle != MPI_REQUEST_NULL) check(MPI_Test(&handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return handle == MPI_REQUEST_NULL;
  }

  [[nodiscard]] bool wait() override {
    if (handle != MPI_REQUEST_NULL) check(MPI_Wait(&handle, MPI_STATUS_IGNORE), "MPI_Wait");
    return true;
  }

  MPI_Request handle = MPI_REQUEST_NULL;

 private:
  std::shared_ptr<void> memory_;
  bool incoming_;
};

}  // namespace

SimulatedNetwork::SimulatedNetwork() {
  // SimGrid matches a receive from any rank in no actor's context, where MPI_COMM_WORLD has no meaning.
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  int* last = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&last), &known), "MPI_Comm_get_attr");
  max_tag_ = known != 0 ? *last : 32767;
}

std::unique_ptr<Request> SimulatedNetwork::isend(const void* data, std::size_t bytes, int to, int tag,
                                                 std::shared_ptr<void> memory) {
  auto request = std::make_unique<SimulatedRequest>(std::move(memory), false);
  if (discarded_ != nullptr && is_data(tag)) data = discarded_;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &request->handle), "MPI_Isend");
  return request;
}

std::unique_ptr<Request> SimulatedNetwork::irecv(void* data, std::size_t bytes, int from, int tag,
                                                 std::shared_ptr<void> memory) {
  auto request = std::make_unique<SimulatedRequest>(std::move(memory), true);
  if (discarded_ != nullptr && is_data(tag)) data = discarded_;
  const int source = from == any_rank ? MPI_ANY_SOURCE : from;
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, tag, comm_, &request->handle), "MPI_Irecv");
  return request;
}

void SimulatedNetwork::sleep(std::chrono::nanoseconds time) {
  simgrid::s4u::this_actor::sleep_for(std::chrono::duration<double>(time).count());
}

}  // namespace tnt
