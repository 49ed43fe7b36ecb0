// The memory of all simulated devices of the process, and their pinned host memory. The host's code cannot access a device's
// memory: doing so ends the test with a message, except while work of some device runs. Addresses are never reused.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace tnt::testing {

struct MemoryBlock {
  PointerAttributes place;
  const void* owner = nullptr;  // the device
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  bool released = false;
  std::string name;  // for reports: "memory 3", or what the test called it

  [[nodiscard]] const std::byte* end() const { return memory + bytes; }
};

class SimulatedMemory {
 public:
  [[nodiscard]] static SimulatedMemory& of_process();

  // Filled with arbitrary values, between guard zones.
  [[nodiscard]] void* allocate(const void* owner, PointerAttributes place, std::size_t bytes);
  // Overwrites it with arbitrary values. False if the guard zones were written.
  [[nodiscard]] bool release(void* memory);
  [[nodiscard]] bool guards_intact(const MemoryBlock& block);
  // The block that contains the address or ends there (an empty access); none for other memory.
  [[nodiscard]] std::optional<MemoryBlock> block_of(const void* memory);
  void name(const void* memory, const std::string& name);
  [[nodiscard]] std::vector<MemoryBlock> blocks_of_owner(const void* owner);  // those that are not released

  // Device memory is accessible while this object exists.
  class Open {
   public:
    Open() { of_process().open(); }
    ~Open() { of_process().close(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
  };

 private:
  struct Region {  // of address space, allocated from its beginning
    std::byte* begin = nullptr;
    std::size_t used = 0;
  };
  SimulatedMemory();
  void open();
  void close();
  void protect(int protection);
  [[nodiscard]] std::byte* take(Region& region, std::size_t bytes);
  void rubbish(const MemoryBlock& block, int value);

  std::mutex mutex_;
  Region device_;
  Region pinned_;
  std::size_t openers_ = 0;
  std::map<const std::byte*, MemoryBlock> blocks_;
};

}  // namespace tnt::testing
