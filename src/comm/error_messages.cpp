#include "comm/error_messages.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "base/clock.hpp"

namespace tnt {

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most = 16;
  std::string names;
  for (const int rank : std::span(ranks).first(std::min(most, ranks.size()))) {
    names += fmt::format("{}rank {}", names.empty() ? "" : ", ", rank);
  }
  return ranks.size() <= most ? names : fmt::format("{} and {} others", names, ranks.size() - most);
}

std::string mismatch_message(int rank, const Call& call, int other_rank, const Call& other_call, std::uint64_t number) {
  if (call.counts_hash != other_call.counts_hash && describe(call) == describe(other_call)) {
    return fmt::format(
        "rank {} and rank {} called {} with different counts of the ranks (call {} of their communicator): all ranks must pass "
        "the same list",
        rank, other_rank, describe(call), number);
  }
  return fmt::format(
      "rank {} called {} while rank {} called {} (call {} of their communicator): all ranks must make the same calls in the "
      "same order",
      rank, describe(call), other_rank, describe(other_call), number);
}

std::string message_waiter(int rank, const std::string& described, const CallContext& context) {
  const std::string detail = context.detail.empty() ? "" : fmt::format(" ({})", context.detail);
  return fmt::format("rank {} in {}{}", rank, described, detail);
}

std::string unlike_messages(int rank, const std::string& described, int peer, const std::string& peer_described) {
  return fmt::format("rank {} called {} while rank {} called {}: their types and counts must be equal", rank, described, peer,
                     peer_described);
}

std::string block_mismatch_message(int sender, std::size_t sent, int receiver, std::size_t expected, const Call& call,
                                   std::uint64_t number) {
  return fmt::format(
      "rank {} sends {} elements to rank {}, which expects {}, in {} (call {} of their communicator): recv_counts[{}] of "
      "rank {} must be send_counts[{}] of rank {}",
      sender, sent, receiver, expected, describe(call), number, sender, receiver, receiver, sender);
}

std::string lost_message(int rank, const std::string& waiter) {
  return fmt::format("rank {} was lost (it or its host has died) while {} waited for it", rank, waiter);
}

std::string left_message(int rank, const std::string& waiter) {
  return fmt::format("rank {} left the job (its script has ended) while {} waited for it", rank, waiter);
}

std::string timeout_message(const std::vector<int>& missing, double seconds, const std::string& waiter) {
  return fmt::format(
      "{} did not arrive within {} s while {} waited for it (the process may be stopped or busy; TNT_TIMEOUT sets the "
      "deadline)",
      name_ranks(missing), seconds, waiter);
}

Error abort_job(Communicator& host, tnt_status_t status, const std::string& message) noexcept {
  host.abort(status, message);
  std::optional<Error> said = host.async_error();
  // another rank may be writing its message, which takes a moment
  for (const Deadline deadline(1.0); !said && !deadline.passed(); said = host.async_error()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return said.value_or(Error(status, message));
}

}  // namespace tnt
