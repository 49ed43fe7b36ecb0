// Files of measurements for each host in the user's cache. Home directories are often shared by hosts, so the name has the
// host.
#pragma once

#include <string>
#include <string_view>

#include "base/settings.hpp"

namespace tnt {

// "$XDG_CACHE_HOME/tarantella/<subject>-<host>.json", or in ~/.cache; "" if the environment has neither.
[[nodiscard]] std::string host_cache_file(const Environment& environment, std::string_view subject);

}  // namespace tnt
