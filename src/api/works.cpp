// The C functions of works: operations that were started.
#include "api/works.hpp"

#include <cmath>
#include <deque>
#include <span>
#include <vector>

#include "api/boundary.hpp"

using namespace tnt;

extern "C" {

tnt_status_t tnt_work_wait(tnt_work_t work, double seconds) {
  return guarded([&] {
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (!HandleUse(work)->state->wait(seconds)) fail(TNT_TIMEOUT, "the operation has not finished within {} s", seconds);
  });
}

tnt_status_t tnt_work_wait_any(const tnt_work_t* works, size_t n, double seconds, size_t* index) {
  return guarded([&] {
    required(index, "index") = n;
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (n > 0) required(works, "works");
    std::deque<HandleUse<tnt_work>> live;  // none of them is destroyed meanwhile
    std::vector<Waitable*> states;
    for (const tnt_work_t work : std::span(works, n)) {
      states.push_back(work == nullptr ? nullptr : live.emplace_back(work)->state.get());
    }
    if (live.empty()) fail(TNT_INVALID_ARGUMENT, "works has no operation to wait for");
    const auto finished = wait_any(states, seconds);
    if (!finished) fail(TNT_TIMEOUT, "none of {} operations has finished within {} s", live.size(), seconds);
    *index = finished->index;
    if (finished->error) throw Error(*finished->error);
  });
}

tnt_status_t tnt_work_test(tnt_work_t work, int* finished) {
  return guarded_in_forks([&] {
    required(finished, "finished") = 1;  // also when something throws: nobody shall ask again for ever
    refuse_forks();
    *finished = HandleUse(work)->state->wait(0) ? 1 : 0;
  });
}

tnt_status_t tnt_work_destroy(tnt_work_t work) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] { destroy_handle(work); });
}

}  // extern "C"
