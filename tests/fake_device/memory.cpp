#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace fake_device {
namespace {

struct Region {
  char* readable;
  std::uint64_t bytes;
};

std::mutex mutex;
std::map<const char*, Region> regions;  // by the address that TensorFlow knows

}  // namespace

void* allocate(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  const int file = memfd_create("fake_device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const known = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const readable = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (known == MAP_FAILED || readable == MAP_FAILED) return nullptr;
  const std::lock_guard lock{mutex};
  regions[static_cast<char*>(known)] = {static_cast<char*>(readable), bytes};
  return known;
}

void deallocate(void* address) {
  const std::lock_guard lock{mutex};
  const auto found = regions.find(static_cast<char*>(address));
  if (found == regions.end()) return;
  munmap(address, found->second.bytes);
  munmap(found->second.readable, found->second.bytes);
  regions.erase(found);
}

char* bytes_of(const void* address) {
  const auto* const wanted = static_cast<const char*>(address);
  const std::lock_guard lock{mutex};
  const auto after = regions.upper_bound(wanted);
  if (after != regions.begin()) {
    const auto& [known, region] = *std::prev(after);
    if (wanted < known + region.bytes) return region.readable + (wanted - known);
  }
  std::fprintf(stderr, "fake device: %p is no address of its memory\n", address);
  std::abort();
}

}  // namespace fake_device
