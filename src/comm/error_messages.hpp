// Errors that all transports share: their messages, and the end of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// "rank 1, rank 2 and 40 others": the first ones of a long list.
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks);

// number: of the call on the communicator. waiter: the waiting rank and its call, "rank 0 in barrier (call 7)".
[[nodiscard]] std::string mismatch_message(int rank, const Call& call, int other_rank, const Call& other_call,
                                           std::uint64_t number);
// Of point-to-point messages. described: "send of 3 float32 to rank 1".
[[nodiscard]] std::string message_waiter(int rank, const std::string& described, const CallContext& context);
[[nodiscard]] std::string unlike_messages(int rank, const std::string& described, int peer, const std::string& peer_described);
// In all_to_all_v.
[[nodiscard]] std::string block_mismatch_message(int sender, std::size_t sent, int receiver, std::size_t expected,
                                                 const Call& call, std::uint64_t number);
[[nodiscard]] std::string lost_message(int rank, const std::string& waiter);  // its connection has ended
[[nodiscard]] std::string left_message(int rank, const std::string& waiter);
[[nodiscard]] std::string timeout_message(const std::vector<int>& missing, double seconds, const std::string& waiter);

// Aborts the communication of the whole job.
//
// Returns the error that all ranks report; another rank may have aborted first, with its own message. Thread-safe.
[[nodiscard]] Error abort_job(Communicator& host, tnt_status_t status, const std::string& message) noexcept;

}  // namespace tnt
