// The C functions that make a communicator of processes that were started apart: of the ranks of one and of newcomers, or of
// any that have met by a unique id.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "bootstrap/unique_id.hpp"

namespace {

using namespace tnt;

// The arguments of a member, for the others to compare.
struct Wish {
  int ranks = 0;
  bool has_id = false;
  tnt_unique_id_t id{};
};

bool differ(const tnt_unique_id_t& one, const tnt_unique_id_t& other) {
  return std::string_view(one.text, sizeof(one.text)) != std::string_view(other.text, sizeof(other.text));
}

// All members see the same wishes, so all of them throw, or none.
void compare(const std::vector<Wish>& wishes) {
  for (std::size_t rank = 1; rank < wishes.size(); ++rank) {
    if (wishes[rank].ranks != wishes[0].ranks) {
      fail(TNT_MISMATCH, "rank 0 of the communicator passed {} ranks, rank {} passed {}: all members must pass the same",
           wishes[0].ranks, rank, wishes[rank].ranks);
    }
    if (wishes[rank].has_id && differ(wishes[rank].id, wishes[0].id)) {
      fail(TNT_MISMATCH, "rank {} of the communicator passed another id than rank 0: members pass the same, or NULL", rank);
    }
  }
}

// The id of rank 0, once all members are here.
tnt_unique_id_t agree(tnt_comm& comm, const tnt_unique_id_t* id, int ranks) {
  Communicator& communicator = *comm.communicator;
  Wish own{.ranks = ranks, .has_id = id != nullptr};
  if (id != nullptr) own.id = *id;
  std::vector<Wish> wishes(static_cast<std::size_t>(communicator.size()));
  const std::string detail = fmt::format("tnt_comm_grow to {} ranks", ranks);
  comm.executor.run([&] {
    communicator.run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, wishes.data()},
                     {.timeout = Runtime::get().timeout(comm), .detail = detail});
  });
  compare(wishes);
  return wishes[0].id;
}

// Waits for all. timeout: the deadline of the new communicator; 0: of the settings.
tnt_comm_t meet(const tnt_unique_id_t& id, int rank, int ranks, double timeout) {
  Settings settings = Runtime::get().settings_to_meet(timeout);
  MeetingPlace place = read_unique_id(id);
  settings.rank = rank;
  settings.ranks = ranks;
  settings.rendezvous = std::move(place.rendezvous);
  settings.token = std::move(place.token);
  return make_grown(join_at_rendezvous(settings), rank, timeout);
}

tnt_comm_t grow(tnt_comm_t comm, const tnt_unique_id_t* id, int ranks, int rank) {
  const HandleUse on(comm);
  const Communicator& communicator = *on->communicator;
  const int size = communicator.size();
  if (ranks <= size) {
    fail(TNT_INVALID_ARGUMENT, "ranks is {}: the larger communicator has more than the {} of comm", ranks, size);
  }
  if (rank != -1 && rank != communicator.rank()) {
    fail(TNT_INVALID_ARGUMENT, "rank is {}: a member keeps its rank {} of comm, or passes -1", rank, communicator.rank());
  }
  if (communicator.rank() == 0) (void)required(id, "id");
  const bool one_node = communicator.local_size() == size;
  if (id != nullptr && !is_tcp_address(read_unique_id(*id).rendezvous) && !one_node) {
    fail(TNT_INVALID_ARGUMENT,
         "the ranks of comm are on several nodes and cannot meet by this id: make it with tnt_unique_id(\"tcp://HOST:PORT\"), "
         "where HOST is that of rank 0");
  }
  return meet(agree(*on, id, ranks), communicator.rank(), ranks, on->timeout);
}

tnt_comm_t come(const tnt_unique_id_t* id, int ranks, int rank) {
  const HandleUse world(Runtime::world_handle());  // keeps the runtime
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    fail(TNT_INVALID_ARGUMENT, "rank {} of {} ranks is invalid: without comm, a process passes its rank in the new one", rank,
         ranks);
  }
  return meet(required(id, "id"), rank, ranks, 0);
}

}  // namespace

extern "C" {

tnt_status_t tnt_unique_id(const char* rendezvous, tnt_unique_id_t* id) {
  return guarded_in_forks([&] { required(id, "id") = make_unique_id(rendezvous == nullptr ? "" : rendezvous); });
}

tnt_status_t tnt_comm_grow(tnt_comm_t comm, const tnt_unique_id_t* id, int ranks, int rank, tnt_comm_t* larger) {
  return guarded([&] {
    refuse_in_group("tnt_comm_grow");
    required(larger, "larger") = nullptr;
    *larger = comm != nullptr ? grow(comm, id, ranks, rank) : come(id, ranks, rank);
  });
}

}  // extern "C"
