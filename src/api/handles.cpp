#include "api/handles.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace tnt {
namespace {

// Also the name of the parameter.
const char* name_of(HandleKind kind) {
  switch (kind) {
    case HandleKind::reducer: return "reducer";
    case HandleKind::work: return "work";
    case HandleKind::comm: return "comm";
  }
  return "?";
}

}  // namespace

HandleTable::Slot* HandleTable::fail_null(HandleKind kind) { fail(TNT_INVALID_ARGUMENT, "{} is NULL", name_of(kind)); }

void HandleTable::fail_unknown(HandleKind kind) {
  fail(TNT_INVALID_ARGUMENT, "{} is not a handle that exists: tnt_{}_destroy or tnt_finalize has ended it", name_of(kind),
       name_of(kind));
}

// Keeps the number of calls: a call with an old handle may be about to find that out.
void HandleTable::change_tag(Slot& slot, std::uint32_t from, std::uint32_t to) noexcept {
  slot.state.word.fetch_add((std::uint64_t{to} - std::uint64_t{from}) << ExecutorState::tag_shift);
}

std::uint32_t HandleTable::take_index() {
  if (!free_.empty()) {
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  const std::size_t block = block_of(size_);
  if (block >= max_blocks) fail(TNT_SYSTEM, "there are too many handles: destroy those that are not needed");
  if (blocks_[block].load() == nullptr) {
    free_.reserve(std::size_t{first_block} << (block + 1));  // then free_index needs no memory
    blocks_[block] = new Slot[std::size_t{first_block} << block];
  }
  return size_++;
}

// A slot whose count is 0 again has had all tags.
void HandleTable::free_index(std::uint32_t index, std::uint32_t tag) {
  if ((tag & count_mask) != 0) free_.push_back(index);
}

std::uintptr_t HandleTable::add(HandleKind kind, void* object, Destroy* destroy, Executor* executor) {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t index = take_index();
  Slot& slot = *at(index);
  slot.object = object;
  slot.destroy = destroy;
  slot.executor = executor;
  if (executor != nullptr) executor->use(slot.state);
  const std::uint32_t before = tag_in(slot.state.word.load());
  const std::uint32_t tag = with_kind(kind, tag_after(before));
  change_tag(slot, before, tag);
  return std::uintptr_t{tag} << 32 | index;
}

bool HandleTable::is_used(const Slot& slot) noexcept { return (slot.state.word.load() & (ExecutorState::queued - 1)) != 0; }

// Operations that were started may be queued: who destroys the object waits for them.
bool HandleTable::end(Slot& slot) noexcept {
  std::uint64_t now = slot.state.word.load();
  while ((now & (ExecutorState::queued - 1)) == 0) {
    const std::uint32_t tag = tag_in(now);
    const std::uint64_t next = now + ((std::uint64_t{tag_after(tag)} - std::uint64_t{tag}) << ExecutorState::tag_shift);
    if (slot.state.word.compare_exchange_weak(now, next)) return true;
  }
  return false;
}

void HandleTable::destroy(HandleKind kind, std::uintptr_t handle) {
  Slot* slot = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    slot = find(kind, handle);
    if (slot == nullptr) fail_unknown(kind);
    if (!end(*slot)) {
      fail(TNT_INVALID_ARGUMENT,
           "{} is in use: another thread is inside a call with it or has it in a group, which must end first", name_of(kind));
    }
  }
  slot->destroy(slot->object);  // without the lock, because it may wait for other ranks
  const std::scoped_lock lock(mutex_);
  free_index(index_of(handle), tag_after(tag_of(handle)));
}

std::vector<HandleTable::Ended> HandleTable::end_all() {
  std::vector<Ended> all;
  for (std::uint32_t index = 0; index < size_; ++index) {
    const std::uint32_t tag = tag_in(at(index)->state.word.load());
    if (is_alive(tag)) all.push_back({.tag = tag, .index = index});
  }
  std::sort(all.begin(), all.end(), [](const Ended& a, const Ended& b) { return a.tag < b.tag; });  // that is, by kind
  auto used = std::find_if(all.begin(), all.end(), [&](const Ended& one) { return is_used(*at(one.index)); });
  if (used == all.end()) {  // unless a call begins now
    used = std::find_if(all.begin(), all.end(), [&](const Ended& one) { return !end(*at(one.index)); });
    if (used == all.end()) return all;
    for (auto one = all.begin(); one != used; ++one) change_tag(*at(one->index), tag_after(one->tag), one->tag);
  }
  fail(TNT_INVALID_ARGUMENT,
       "tnt_finalize: another thread is inside a call with a {} handle or has it in a group, which must end first",
       name_of(kind_in(used->tag)));
}

void HandleTable::destroy_all() {
  std::vector<Ended> ended;
  {
    const std::scoped_lock lock(mutex_);
    ended = end_all();
  }
  for (const Ended& one : ended) at(one.index)->destroy(at(one.index)->object);
  const std::scoped_lock lock(mutex_);
  for (const Ended& one : ended) free_index(one.index, tag_after(one.tag));
}

// The turn becomes a use before the executor may be destroyed.
void HandleTable::InlineCall::end_slowly() noexcept {
  slot_->state.word.fetch_sub(ExecutorState::here - ExecutorState::user);
  if ((slot_->state.word.load() & ExecutorState::queued) != 0) slot_->executor->wake();
  slot_->state.word.fetch_sub(ExecutorState::user);
}

}  // namespace tnt
