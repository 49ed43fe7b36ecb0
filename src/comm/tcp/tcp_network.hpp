// A network of TCP connections, one between each two ranks, for jobs on several nodes that are started without MPI.
//
// This folder carries messages over connections that exist; src/bootstrap/tcp_join.cpp makes them. Like MPI, the network makes
// progress only inside its functions: a rank that waits polls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.hpp"
#include "comm/network/messages/network.hpp"

namespace tnt {

// Every message is sent at once. A message that comes before its receive is stored, so a rank that lags behind needs memory for
// what the others have sent it. The algorithms of src/comm/network limit that by the chunks that they have in flight.
class TcpNetwork final : public Network {
 public:
  // sockets: to each rank, in order; that of this rank is not looked at.
  TcpNetwork(int rank, std::vector<FileDescriptor> sockets);
  ~TcpNetwork() override;  // waits up to a second until the other hosts have what was sent

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return "TCP"; }
  [[nodiscard]] const char* transport() const noexcept override { return "tcp"; }
  [[nodiscard]] int max_tag() const noexcept override;

  [[nodiscard]] std::unique_ptr<Request> isend(const void* data, std::size_t bytes, int to, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] std::unique_ptr<Request> irecv(void* data, std::size_t bytes, int from, int tag,
                                               std::shared_ptr<void> memory) override;
  [[nodiscard]] bool lost(int rank) override;
  [[nodiscard]] std::string host_of(int rank) override;
  void skip_finalize() noexcept override {}  // nothing waits for other ranks

 private:
  class Engine;
  class TcpRequest;
  int rank_;
  int size_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace tnt
