// The handles of the C API. A handle is no address: it holds the index of its object in a table and a tag that no earlier
// object at that index had. A handle whose object is gone is therefore recognised, and nothing is read through it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/executor.hpp"
#include "common/non_copyable.hpp"

struct tnt_comm;
struct tnt_work;
struct tnt_reducer;

namespace tnt {

// In the order in which tnt_finalize destroys the objects: a reducer uses communicators.
enum class HandleKind : std::uint32_t { reducer, work, comm };

// The objects of all handles of this process. Finding one takes no lock. Thread-safe.
class HandleTable {
 public:
  using Destroy = void(void* object);

  // Returns a handle that has not existed before. executor: of a communicator's collectives; may be null.
  [[nodiscard]] std::uintptr_t add(HandleKind kind, void* object, Destroy* destroy, Executor* executor = nullptr);
  // Throws TNT_INVALID_ARGUMENT if the handle does not exist, or if another thread is inside a call with it.
  void destroy(HandleKind kind, std::uintptr_t handle);
  // Throws TNT_INVALID_ARGUMENT, without any effect, if a thread is inside a call with a handle.
  void destroy_all();

 private:
  // state: the tag, and the number of calls that use the object. Each slot has its own cache line, so that calls with different
  // handles do not slow each other down.
  struct alignas(64) Slot {
    ExecutorState state;
    void* object = nullptr;
    Destroy* destroy = nullptr;
    Executor* executor = nullptr;
  };
  struct Ended {
    std::uint32_t tag;  // that it had
    std::uint32_t index;
  };

  // A tag: the kind, and a number that counts up when an object comes or goes, so that it is odd while there is one.
  static constexpr int kind_shift = 29;
  static constexpr std::uint32_t count_mask = (1U << kind_shift) - 1;
  static constexpr std::uint32_t first_block = 64;  // slots; each later block has twice as many as the one before
  static constexpr std::size_t max_blocks = 20;     // 67 million slots

 public:
  // A call that uses an object, which is not destroyed meanwhile. Cost: two atomic additions.
  class Use : NonCopyable {
   public:
    // Throws TNT_INVALID_ARGUMENT if the handle is NULL or does not exist.
    Use(const HandleTable& table, HandleKind kind, std::uintptr_t handle)
        : slot_(handle == 0 ? fail_null(kind) : table.find(kind, handle)) {
      if (slot_ == nullptr) fail_unknown(kind);
      if (tag_in(slot_->state.word.fetch_add(ExecutorState::user)) == tag_of(handle)) return;
      slot_->state.word.fetch_sub(ExecutorState::user);
      fail_unknown(kind);
    }
    ~Use() { slot_->state.word.fetch_sub(ExecutorState::user); }
    [[nodiscard]] void* object() const noexcept { return slot_->object; }

   private:
    Slot* slot_;
  };

  // A collective in the caller's thread: a use, and the beginning and end of an operation of the executor, in one atomic
  // instruction each. It begins unless the communicator does something else.
  class InlineCall : NonCopyable {
   public:
    InlineCall(const HandleTable& table, std::uintptr_t handle)  // throws as Use
        : slot_(handle == 0 ? fail_null(HandleKind::comm) : table.find(HandleKind::comm, handle)),
          idle_(std::uint64_t{tag_of(handle)} << ExecutorState::tag_shift) {
      if (slot_ == nullptr) fail_unknown(HandleKind::comm);
      std::uint64_t now = idle_;
      if (!slot_->state.word.compare_exchange_strong(now, idle_ | ExecutorState::here)) slot_ = nullptr;
    }
    ~InlineCall() {
      std::uint64_t now = idle_ | ExecutorState::here;
      if (slot_ != nullptr && !slot_->state.word.compare_exchange_strong(now, idle_)) end_slowly();
    }
    [[nodiscard]] bool began() const noexcept { return slot_ != nullptr; }
    [[nodiscard]] void* object() const noexcept { return slot_->object; }

   private:
    void end_slowly() noexcept;

    Slot* slot_;
    std::uint64_t idle_;
  };

 private:
  static std::uint32_t tag_in(std::uint64_t state) noexcept {
    return static_cast<std::uint32_t>(state >> ExecutorState::tag_shift);
  }
  static std::uint32_t tag_of(std::uintptr_t handle) noexcept { return static_cast<std::uint32_t>(handle >> 32); }
  static std::uint32_t index_of(std::uintptr_t handle) noexcept { return static_cast<std::uint32_t>(handle); }
  static HandleKind kind_in(std::uint32_t tag) noexcept { return static_cast<HandleKind>(tag >> kind_shift); }
  static std::uint32_t with_kind(HandleKind kind, std::uint32_t tag) noexcept {
    return static_cast<std::uint32_t>(kind) << kind_shift | (tag & count_mask);
  }
  static std::uint32_t tag_after(std::uint32_t tag) noexcept { return with_kind(kind_in(tag), tag + 1); }
  static bool is_alive(std::uint32_t tag) noexcept { return tag % 2 == 1; }
  [[noreturn]] static Slot* fail_null(HandleKind kind);
  [[noreturn]] static void fail_unknown(HandleKind kind);

  static std::size_t block_of(std::uint32_t index) noexcept {
    return static_cast<std::size_t>(std::bit_width(index / first_block + 1) - 1);
  }
  [[nodiscard]] Slot* at(std::uint32_t index) const noexcept {
    const std::size_t block = block_of(index);
    Slot* const slots = block < max_blocks ? blocks_[block].load(std::memory_order_acquire) : nullptr;
    return slots == nullptr ? nullptr : slots + (index - ((1U << block) - 1) * first_block);
  }
  // The handle's slot; nullptr if the handle does not exist.
  [[nodiscard]] Slot* find(HandleKind kind, std::uintptr_t handle) const noexcept {
    const std::uint32_t tag = tag_of(handle);
    Slot* const slot = kind_in(tag) == kind && is_alive(tag) ? at(index_of(handle)) : nullptr;
    return slot != nullptr && tag_in(slot->state.word.load(std::memory_order_relaxed)) == tag ? slot : nullptr;
  }

  [[nodiscard]] std::uint32_t take_index();
  void free_index(std::uint32_t index, std::uint32_t tag);
  static void change_tag(Slot& slot, std::uint32_t from, std::uint32_t to) noexcept;
  [[nodiscard]] static bool is_used(const Slot& slot) noexcept;
  [[nodiscard]] static bool end(Slot& slot) noexcept;  // false: it is used
  [[nodiscard]] std::vector<Ended> end_all();

  std::array<std::atomic<Slot*>, max_blocks> blocks_{};  // never freed: a late call may look into them
  std::mutex mutex_;                                     // of all changes of tags, and of what follows
  std::uint32_t size_ = 0;                               // slots that were ever used
  std::vector<std::uint32_t> free_;
};

// The table of this process. Never destroyed, because static objects of the program may destroy handles.
[[nodiscard]] inline HandleTable& handles() {
  static auto* const instance = new HandleTable;
  return *instance;
}

template <typename T>
inline constexpr HandleKind kind_of = HandleKind::comm;
template <>
inline constexpr HandleKind kind_of<tnt_work> = HandleKind::work;
template <>
inline constexpr HandleKind kind_of<tnt_reducer> = HandleKind::reducer;

// The object of a caller's handle, during a call. Throws TNT_INVALID_ARGUMENT if the handle is NULL or does not exist.
template <typename T>
class HandleUse {
 public:
  explicit HandleUse(T* handle) : use_(handles(), kind_of<T>, reinterpret_cast<std::uintptr_t>(handle)) {}
  [[nodiscard]] T& operator*() const noexcept { return *static_cast<T*>(use_.object()); }
  [[nodiscard]] T* operator->() const noexcept { return static_cast<T*>(use_.object()); }

 private:
  HandleTable::Use use_;
};

// The communicator during a collective in this thread, if it did nothing else when the call began (HandleTable::InlineCall).
class InlineCall {
 public:
  explicit InlineCall(tnt_comm* handle) : call_(handles(), reinterpret_cast<std::uintptr_t>(handle)) {}
  [[nodiscard]] bool began() const noexcept { return call_.began(); }
  [[nodiscard]] tnt_comm* operator->() const noexcept { return static_cast<tnt_comm*>(call_.object()); }

 private:
  HandleTable::InlineCall call_;
};

// A new handle, which owns the object. executor: as for HandleTable::add.
template <typename T>
[[nodiscard]] T* make_handle(std::unique_ptr<T> object, Executor* executor = nullptr) {
  const std::uintptr_t handle = handles().add(
      kind_of<T>, object.get(), [](void* owned) { delete static_cast<T*>(owned); }, executor);
  (void)object.release();
  return reinterpret_cast<T*>(handle);  // NOLINT(performance-no-int-to-ptr): opaque for callers
}

// Ignores NULL.
template <typename T>
void destroy_handle(T* handle) {
  if (handle != nullptr) handles().destroy(kind_of<T>, reinterpret_cast<std::uintptr_t>(handle));
}

}  // namespace tnt
