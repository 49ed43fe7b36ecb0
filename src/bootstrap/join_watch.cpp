#include "bootstrap/join_watch.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "bootstrap/local_socket.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr double answer_seconds = 1.0;  // for a rank to answer; one that is stopped never does
constexpr double asking_seconds = 1.0;  // how much later than this rank the others may ask it
constexpr std::uint64_t joined_event = 1;
constexpr std::uint64_t end_event = 1 << 20;  // events add up

int number(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = environment(name)) return static_cast<int>(std::strtol(value, nullptr, 10));
  }
  return 0;
}

std::string socket_name(const MpiPlace& place, int rank) {
  return fmt::format("tarantella-join-{}-{}-{}", geteuid(), rank, place.job).substr(0, max_local_name);
}

void answer(const FileDescriptor& listener) {
  const FileDescriptor asking(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (asking) (void)::send(asking.get(), "1", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string named(const std::vector<int>& ranks) { return fmt::format("rank {}", fmt::join(ranks, ", ")); }

struct Answers {
  std::vector<int> here;     // ranks of this node that are inside MPI_Init, with this one
  std::vector<int> stopped;  // have called it, and do not answer
  std::vector<int> absent;   // have not called it, or are on another node
};

// Asks all other ranks, and answers them meanwhile.
Answers ask(const MpiPlace& place, const FileDescriptor& listener) {
  Answers found;
  std::vector<std::pair<int, FileDescriptor>> asked;
  for (int rank = 0; rank < place.ranks; ++rank) {
    if (rank == place.rank) continue;
    FileDescriptor socket = local_socket(SOCK_NONBLOCK);
    if (connect_local(socket, socket_name(place, rank)) && same_user(socket)) {
      asked.emplace_back(rank, std::move(socket));
    } else {
      found.absent.push_back(rank);
    }
  }
  found.here.push_back(place.rank);
  const Deadline deadline(answer_seconds);
  while (!asked.empty() && !deadline.passed()) {
    std::vector<pollfd> waits{{listener.get(), POLLIN, 0}};
    for (const auto& [rank, socket] : asked) waits.push_back({socket.get(), POLLIN, 0});
    (void)::poll(waits.data(), waits.size(), 50);
    if (waits[0].revents != 0) answer(listener);
    for (std::size_t i = asked.size(); i-- > 0;) {
      if (waits[i + 1].revents == 0) continue;
      found.here.push_back(asked[i].first);  // or has just ended, because it has found the same
      asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const auto& [rank, socket] : asked) found.stopped.push_back(rank);
  std::sort(found.here.begin(), found.here.end());
  return found;
}

std::string sentence(const MpiPlace& place, double seconds, const Answers& found) {
  if (!found.stopped.empty()) {
    return fmt::format("{} did not join within {} s: called MPI_Init, and does not answer, as if it were stopped",
                       named(found.stopped), seconds);
  }
  if (place.local_ranks == place.ranks && !found.absent.empty()) {
    return fmt::format("{} did not join within {} s: has not called MPI_Init", named(found.absent), seconds);
  }
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  const int missing = place.local_ranks - static_cast<int>(found.here.size());
  if (missing > 0) {
    return fmt::format("{} of the {} ranks of {} did not join within {} s: only {} called MPI_Init", missing, place.local_ranks,
                       host.data(), seconds, named(found.here));
  }
  return fmt::format("MPI_Init did not return within {} s: {} of {} wait there for a rank of another host, or for the network",
                     seconds, named(found.here), host.data());
}

}  // namespace

MpiPlace read_mpi_place(const Environment& environment) {
  MpiPlace place;
  place.rank = number(environment, {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
  place.ranks = number(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  place.local_ranks = number(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  for (const char* name : {"TNT_INTERNAL_JOB", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (const char* value = environment(name)) place.job += fmt::format("{} ", value);
  }
  if (place.job.empty()) place.job = std::to_string(getppid());  // MPICH's Hydra: of its proxy
  return place;
}

JoinWatch::JoinWatch(MpiPlace place, double seconds, std::function<void(const std::string&)> fail)
    : place_(std::move(place)), seconds_(seconds), fail_(std::move(fail)) {
  listener_ = local_socket(SOCK_NONBLOCK);
  events_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener_ || !events_) fail_errno("cannot make a socket for the time in MPI_Init");
  // a failure costs others the knowledge that this rank has come, and is no reason to end
  if (bind_local(listener_, socket_name(place_, place_.rank))) (void)::listen(listener_.get(), place_.ranks + 16);
  thread_ = start_thread("tnt-join", [this] {
    const Deadline deadline(seconds_);
    bool waits_for_mpi = true;
    while (true) {
      std::array<pollfd, 2> waits{{{listener_.get(), POLLIN, 0}, {events_.get(), POLLIN, 0}}};
      (void)::poll(waits.data(), waits.size(), 100);
      if ((waits[0].revents & POLLIN) != 0) answer(listener_);
      std::uint64_t events = 0;
      if (waits[1].revents != 0 && ::read(events_.get(), &events, sizeof(events)) == sizeof(events)) waits_for_mpi = false;
      if (events >= end_event) return;
      if (!waits_for_mpi || !deadline.passed()) continue;
      waits_for_mpi = false;
      const Answers found = ask(place_, listener_);
      for (const Deadline asking(asking_seconds); !asking.passed();) {
        (void)::poll(waits.data(), 1, 50);
        answer(listener_);
      }
      pollfd event{events_.get(), POLLIN, 0};
      if (::poll(&event, 1, 0) == 0) fail_(sentence(place_, seconds_, found));  // else MPI_Init has returned after all
    }
  });
}

void JoinWatch::joined() { (void)::write(events_.get(), &joined_event, sizeof(joined_event)); }

JoinWatch::~JoinWatch() {
  (void)::write(events_.get(), &end_event, sizeof(end_event));
  thread_.join();
}

void end_process_that_cannot_join(const std::string& sentence) {
  const std::string line = fmt::format("tarantella: {}\n", sentence);
  (void)::write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace tnt
