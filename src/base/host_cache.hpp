// Where a host keeps what was measured on it: a file for each host in the user's cache, as homes are often shared by hosts.
#pragma once

#include <string>
#include <string_view>

#include "base/settings.hpp"

namespace tnt {

// "$XDG_CACHE_HOME/tarantella/<subject>-<host>.json", or in ~/.cache; "" where the environment names neither.
[[nodiscard]] std::string host_cache_file(const Environment& environment, std::string_view subject);

}  // namespace tnt
