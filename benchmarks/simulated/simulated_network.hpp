// A network in simulated time: the ranks are actors of SimGrid in one process and one thread, and its simulated MPI (SMPI)
// carries their messages over the links of a platform file. The collectives above run unchanged.
//
// This folder is the only code that knows SimGrid. It is built with TNT_SIMGRID, for tnt-simulated, and is in no other program.
#pragma once

#include <smpi/mpi.h>

#include <string>

#include "comm/network/messages/network.hpp"

namespace tnt {

// Of the calling actor, which has called MPI_Init. Waiting blocks the actor: an abort by another rank does not end the wait.
class SimulatedNetwork final : public Network {
 public:
  SimulatedNetwork();

  // From now on the data of collectives is not moved: its messages take their time, and lead from this memory, which is as
  // large as any of them, into it. What algorithms tell each other is still moved. nullptr: all data is moved, as at the start.
  static void discard_data(void* memory) noexcept { discarded_ = memory; }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return "SimGrid"; }
  [[nodiscard]] const char* transport() const noexcept override { return "simulated"; }
  [[nodiscard]] int max_tag() const noexcept override { return max_tag_; }
  [[nodiscard]] std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                               std::shared_ptr<void> memory) override;
  void sleep(std::chrono::nanoseconds time) override;
  [[nodiscard]] bool takes_callers_memory() const noexcept override { return true; }
  void skip_finalize() noexcept override {}

 private:
  inline static void* discarded_ = nullptr;  // for all ranks, which are in one process
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 0;
};

}  // namespace tnt
