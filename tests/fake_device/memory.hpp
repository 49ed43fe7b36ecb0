// Memory of the fake device: host memory at addresses that nobody may read or write. The device's own work finds the same bytes
// at other addresses, so code that takes a tensor's pointer for host memory is ended by SIGSEGV.
#pragma once

#include <cstdint>

namespace fake_device {

// An address for `bytes` of it; null if the system gives none.
void* allocate(std::uint64_t bytes);

void deallocate(void* address);

// Where the device's own work finds the bytes that have this address, or one inside of an allocation.
char* bytes_of(const void* address);

}  // namespace fake_device
