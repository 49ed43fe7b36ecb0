// How the ranks of one node find each other: rank 0 listens on an abstract Unix socket, the others say who they are and
// get the shared segment's descriptor. Nothing of it has a name in the file system, so nothing can be left behind.
#pragma once

#include <functional>

#include "base/file_descriptor.hpp"
#include "base/settings.hpp"

namespace tnt {

// One line of text each way, then the connection is closed:
//   to rank 0:  "tarantella 1 <token> join <rank> <ranks> <library version>\n"
//               "tarantella 1 <token> exit <rank> <exit code>\n"     the launcher's: this rank will not come
//   back:       "ok\n" with the descriptor, or "error [<status> ]<message>\n", the status by its name
// Connections without the job's token, or of another user, are closed unheard.

// Rank 0: waits for all other ranks and gives them segment. Throws TNT_TIMEOUT, TNT_PEER_LOST or TNT_MISMATCH, naming the
// rank, and tells those who had joined. prepare is called when all have come, before they get the segment: what it throws, all
// throw.
void lead_rendezvous(const Settings& settings, const FileDescriptor& segment, const std::function<void()>& prepare = {});

// Every other rank: returns the segment. Throws the same status and message as rank 0. Does not tell the token to a process
// of another user that has taken the name.
[[nodiscard]] FileDescriptor join_rendezvous(const Settings& settings);

}  // namespace tnt
