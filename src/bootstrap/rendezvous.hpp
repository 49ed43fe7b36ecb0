// How the ranks of one node find each other. Rank 0 listens on an abstract Unix socket. The other ranks connect and receive the
// descriptor of the shared segment. Nothing has a name in the file system, so nothing can be left behind.
#pragma once

#include <functional>

#include "base/file_descriptor.hpp"
#include "base/settings.hpp"

namespace tnt {

// One line of text in each direction, then the connection is closed:
//   to rank 0:  "tarantella 1 <token> join <rank> <ranks> <library version>\n"
//               "tarantella 1 <token> exit <rank> <exit code>\n"     from the launcher: this rank will not come
//   back:       "ok\n" with the descriptor, or "error [<status> ]<message>\n" with the name of the status
// Connections from another user are closed without an answer. A process with another token is told so and sent away.

// Rank 0: waits for all other ranks and sends them the segment. prepare is called after all ranks have joined and before they
// receive it; if it throws, all ranks throw. Throws TNT_TIMEOUT, TNT_PEER_LOST or TNT_MISMATCH, names the rank, and reports the
// error to the ranks that have joined.
// check: called again and again while this rank waits, and may throw.
void lead_rendezvous(const Settings& settings, const FileDescriptor& segment, const std::function<void()>& prepare = {},
                     const std::function<void()>& check = {});

// Other ranks: returns the segment. Throws the same status and message as rank 0. Does not send the token to another user's
// process that has taken the name.
[[nodiscard]] FileDescriptor join_rendezvous(const Settings& settings, const std::function<void()>& check = {});

}  // namespace tnt
