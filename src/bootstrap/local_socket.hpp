// Sockets between processes of one host and one user. Their names are abstract, so nothing is left in the file system.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/file_descriptor.hpp"

namespace tnt {

inline constexpr std::size_t max_local_name = 107;

// 32 hexadecimal digits: for a name or a token that nobody guesses.
[[nodiscard]] std::string random_name();

// flags: more than SOCK_STREAM and SOCK_CLOEXEC. Empty, and errno, if there is none.
[[nodiscard]] FileDescriptor local_socket(int flags = 0);

// Whether it succeeded; otherwise errno says why.
[[nodiscard]] bool bind_local(const FileDescriptor& socket, std::string_view name);
[[nodiscard]] bool connect_local(const FileDescriptor& socket, std::string_view name);

// Whether the process at the other end of a connected socket is of this user. Of a listening one counts who listened.
[[nodiscard]] bool same_user(const FileDescriptor& socket);

}  // namespace tnt
