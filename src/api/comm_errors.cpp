// The C functions of a communicator's errors: how far they reach, aborts, and going on without the ranks that have died.
#include <string>
#include <vector>

#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"

namespace {

using namespace tnt;

// "rank 3": in the job, as in all errors.
std::string own_name(const tnt_comm& comm) { return fmt::format("rank {}", comm.rank_in_job); }

const char* name_of(int mode) { return mode == TNT_ERRORS_RETURN ? "TNT_ERRORS_RETURN" : "TNT_ERRORS_END_JOB"; }

// All ranks see the same modes, so all of them throw, or none.
void check_equal_modes(Communicator& comm, int mode, const CallContext& call) {
  std::vector<int> modes(static_cast<std::size_t>(comm.size()));
  comm.run({{.kind = Call::all_gather, .dtype = TNT_INT32, .count = 1}, &mode, modes.data()}, call);
  for (std::size_t rank = 1; rank < modes.size(); ++rank) {
    if (modes[rank] == modes[0]) continue;
    fail(TNT_MISMATCH, "rank 0 of the communicator passed {}, rank {} passed {}: all ranks must pass the same",
         name_of(modes[0]), rank, name_of(modes[rank]));
  }
}

// Where TCP connects the ranks, an error ends all of its connections, and the ranks prepare to meet anew.
void set_mode(tnt_comm& comm, bool returns) {
  Communicator& communicator = *comm.communicator;
  const bool by_tcp = !communicator.hosts().empty();
  if (!by_tcp) communicator.set_error_scope(returns ? ErrorScope::communicator : ErrorScope::job);
  if (!returns) comm.reunion.reset();
  if (returns && by_tcp) comm.reunion = std::make_unique<Reunion>(communicator, Runtime::get().context(comm));
}

// Has the mode and the deadline of comm, whatever its transport.
tnt_comm_t meet_anew(tnt_comm& comm) {
  Reunion::Result met;
  comm.executor.run([&] { met = comm.reunion->meet(Runtime::get().settings_to_meet(comm.timeout)); });
  Communicator& smaller = *met.job.communicator;
  if (smaller.hosts().empty()) smaller.set_error_scope(ErrorScope::communicator);
  const tnt_comm_t made = make_grown(std::move(met.job), met.rank, comm.timeout);
  HandleUse(made)->reunion = std::move(met.next);
  return made;
}

}  // namespace

extern "C" {

tnt_status_t tnt_comm_abort(tnt_comm_t comm, const char* reason) {
  return guarded([&] {
    const HandleUse on(comm);
    on->communicator->abort(TNT_ABORTED, fmt::format("{}: {}", own_name(*on), reason == nullptr ? "aborted" : reason));
  });
}

tnt_status_t tnt_comm_check(tnt_comm_t comm) {
  return guarded([&] {
    const HandleUse on(comm);
    if (const auto error = on->communicator->async_error()) throw Error(*error);
    const std::scoped_lock lock(on->device_mutex);
    if (on->device_collectives) on->device_collectives->check();
  });
}

tnt_status_t tnt_comm_set_error_mode(tnt_comm_t comm, tnt_error_mode_t mode) {
  return guarded([&] {
    refuse_in_group("tnt_comm_set_error_mode");
    if (mode != TNT_ERRORS_END_JOB && mode != TNT_ERRORS_RETURN) {
      fail(TNT_INVALID_ARGUMENT, "mode {} is not a tnt_error_mode_t", static_cast<int>(mode));
    }
    const HandleUse on(comm);
    const std::scoped_lock lock(on->device_mutex);
    if (mode == TNT_ERRORS_RETURN && on->device_collectives) {
      fail(TNT_INVALID_ARGUMENT,
           "the communicator has used GPUs already: set its mode before, or that of a new one (tnt_comm_split)");
    }
    on->executor.run([&] {
      check_equal_modes(*on->communicator, mode, Runtime::get().context(*on));
      set_mode(*on, mode == TNT_ERRORS_RETURN);
      // reducers that are made from now on do not take communicators with the mode of before
      on->pool = std::make_shared<CommunicatorPool>(false);
      on->pool_with_flat_sums = std::make_shared<CommunicatorPool>(true);
    });
  });
}

tnt_status_t tnt_comm_shrink(tnt_comm_t comm, tnt_comm_t* smaller) {
  return guarded([&] {
    refuse_in_group("tnt_comm_shrink");
    required(smaller, "smaller") = nullptr;
    const HandleUse on(comm);
    Communicator& communicator = *on->communicator;
    if (!on->reunion && communicator.error_scope() == ErrorScope::job) {
      fail(TNT_INVALID_ARGUMENT,
           "an error of this communicator ends the job: call tnt_comm_set_error_mode with TNT_ERRORS_RETURN before the error");
    }
    // ends what was started on it, here and on ranks that have not noticed an error
    communicator.abort(TNT_ABORTED,
                       fmt::format("{} called tnt_comm_shrink: all ranks of the communicator call it", own_name(*on)));
    if (on->reunion) {
      *smaller = meet_anew(*on);
      return;
    }
    std::unique_ptr<Communicator> made;
    on->executor.run([&] { made = communicator.shrink(Runtime::get().context(*on)); });
    *smaller = make_part(*on, std::move(made));
  });
}

}  // extern "C"
