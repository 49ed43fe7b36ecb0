// The Network of MPI: messages on a duplicate of MPI_COMM_WORLD, or of the program's communicator.
//
// This folder is the only code of the library that calls MPI. It is built for each ABI of MPI as a plug-in, which load.hpp
// opens at run time. Algorithms of collectives are in src/comm/network.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/mpi/mpi_session.hpp"
#include "comm/network/messages/network.hpp"

namespace tnt {

class MpiNetwork final : public Network {
 public:
  // comm, seconds: as open_mpi_network (load.hpp).
  MpiNetwork(const void* comm, double seconds);
  ~MpiNetwork() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return session_.describe(); }
  [[nodiscard]] const char* transport() const noexcept override { return "mpi"; }
  [[nodiscard]] int max_tag() const noexcept override { return max_tag_; }
  [[nodiscard]] std::size_t unasked_bytes() const noexcept override;
  [[nodiscard]] bool test_yields() const noexcept override;
  [[nodiscard]] std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] bool takes_callers_memory() const noexcept override { return session_.ours(); }
  [[nodiscard]] std::shared_ptr<NativeCollectives> native_collectives() override;
  void close() noexcept override;
  void skip_finalize() noexcept override;

 private:
  class Channel;
  class MpiRequest;
  class MpiCollectives;

  MpiSession session_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<NativeCollectives> collectives_;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 32767;
};

}  // namespace tnt
