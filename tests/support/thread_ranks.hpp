// Ranks that are threads of the test. Each has its own communicator over the transport that the test program is linked with
// (support/transport.hpp).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "common/error.hpp"
#include "support/transport.hpp"

namespace tnt::testing {

inline constexpr double default_timeout = 50.0;  // seconds, for waits of tests that should not time out: a busy machine is slow

[[nodiscard]] inline CallContext call(double timeout = default_timeout) { return {.timeout = timeout}; }

using Body = std::function<void(Communicator&)>;
using Endings = std::vector<std::optional<Error>>;  // what each rank's body threw

class ThreadJob {
 public:
  explicit ThreadJob(int ranks);
  ThreadJob(int ranks, std::unique_ptr<Transport> transport) : ranks_(ranks), transport_(std::move(transport)) {}

  // Runs body on every rank. Once for each job: a rank that has left cannot join again.
  [[nodiscard]] Endings run(const Body& body) const;
  [[nodiscard]] std::int64_t bytes_taken() const { return transport_->bytes_taken(); }

 private:
  int ranks_;
  std::unique_ptr<Transport> transport_;
};

// Runs body on threads as ranks; a rank that throws fails the test.
void run_threads(int ranks, const Body& body);

// The same, expecting that every rank throws the same status and message, which is returned.
[[nodiscard]] std::string common_error(int ranks, tnt_status_t status, const Body& body);

}  // namespace tnt::testing
