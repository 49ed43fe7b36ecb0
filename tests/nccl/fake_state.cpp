#include "nccl/fake_state.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "support/simulated_stream.h"

namespace fake {

std::string Signature::text() const {
  std::ostringstream text;
  text << function << "(count " << count << ", type " << type << ", " << op_or_root << ")";
  return text.str();
}

bool Group::complete() const {
  return std::all_of(members.begin(), members.end(), [](const Comm* member) { return member != nullptr; });
}

bool Group::dead() const {
  return std::any_of(members.begin(), members.end(), [](const Comm* member) { return member != nullptr && member->ended(); });
}

bool Comm::in_window(const void* address) const {
  return std::any_of(registrations.begin(), registrations.end(),
                     [&](const Registration& each) { return each.window && each.has(address); });
}

bool State::registered(const void* address) const {
  return std::any_of(comms_.begin(), comms_.end(), [&](const auto& comm) {
    const bool alive = comm->life == Life::open || comm->life == Life::finalized;
    return alive && std::any_of(comm->registrations.begin(), comm->registrations.end(),
                                [&](const Registration& each) { return each.has(address); });
  });
}

State& State::get() {
  static State* instance = new State();  // work on the last streams may outlive static objects
  return *instance;
}

State::State() {
  const char* text = std::getenv("FAKE_NCCL");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; std::getline(words, word, ',');) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) continue;
    const auto at = word.find('@');
    const int rank = at < equals ? std::stoi(word.substr(at + 1)) : -1;
    set(word.substr(0, std::min(at, equals)), rank, std::stol(word.substr(equals + 1)));
  }
}

void State::reset() {
  settings_.clear();
  counts_.clear();
  misuse.clear();
  full_devices.clear();
}

long State::setting(const std::string& key, int rank, long otherwise) const {
  for (const int whose : {rank, -1}) {
    if (const auto found = settings_.find({key, whose}); found != settings_.end()) return found->second;
  }
  return otherwise;
}

long State::count(const std::string& function) const {
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

long State::alive() const {
  return std::count_if(comms_.begin(), comms_.end(),
                       [](const auto& comm) { return comm->life == Life::open || comm->life == Life::finalized; });
}

bool State::usable(nccl::ncclComm_t handle, const char* function) {
  counted(function);
  const Comm* comm = comm_of(handle);
  const bool known = std::any_of(comms_.begin(), comms_.end(), [&](const auto& each) { return each.get() == comm; });
  const char* wrong = nullptr;
  if (!known) {
    wrong = "what is no communicator";
  } else if (comm->life == Life::aborted) {
    wrong = "a communicator that was aborted";
  } else if (comm->life == Life::destroyed) {
    wrong = "a communicator that was destroyed";
  }
  if (wrong != nullptr) misused(std::string(function) + " on " + wrong);
  return wrong == nullptr;
}

Comm& State::make(const std::shared_ptr<Group>& group, int rank) {
  comms_.push_back(std::make_unique<Comm>());
  Comm& comm = *comms_.back();
  comm.group = group;
  comm.rank = rank;
  comm.device = simulated<tnt_simulated_current_fn>("tnt_simulated_current")();
  return comm;
}

void State::join(const std::shared_ptr<Group>& group, Comm& comm) {
  group->members[static_cast<std::size_t>(comm.rank)] = &comm;
  changed.notify_all();
}

void fail_later(Comm& comm, nccl::ncclResult_t error, const std::string& words) {
  if (comm.error != nccl::ncclSuccess) return;
  comm.error = error;
  comm.words = words;
  State::get().changed.notify_all();
}

std::size_t bytes_of(nccl::ncclDataType_t type) {
  switch (type) {
    case nccl::ncclInt8:
    case nccl::ncclUint8: return 1;
    case nccl::ncclFloat16:
    case nccl::ncclBfloat16: return 2;
    case nccl::ncclInt32:
    case nccl::ncclUint32:
    case nccl::ncclFloat32: return 4;
    case nccl::ncclInt64:
    case nccl::ncclUint64:
    case nccl::ncclFloat64: return 8;
  }
  return 0;
}

}  // namespace fake
