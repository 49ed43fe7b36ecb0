// How many ranks one node can have.
#pragma once

namespace tnt {

inline constexpr int max_ranks = 512;

}  // namespace tnt
