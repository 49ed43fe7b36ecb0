// The token of a job that somebody else than our launcher has started: where it comes from, and who can read it.
#pragma once

#include <string>

namespace tnt {

// The first word of a file that nobody but its owner can read, or of the first line of standard input for "-". Throws
// TNT_INVALID_ARGUMENT, which names the file, and never the token.
[[nodiscard]] std::string read_token(const std::string& path);

// Warns if the token is on a command line of this host, which all its users can read. Costs a look at each process.
void warn_of_visible_token(const std::string& token);

}  // namespace tnt
