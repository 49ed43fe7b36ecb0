// How many ranks one node can have, and a job with shared memory inside of its nodes.
#pragma once

namespace tnt {

inline constexpr int max_ranks = 512;
inline constexpr int max_job_ranks = 4096;

}  // namespace tnt
