// The plan of a run: the number of measurements and their memory.
#pragma once

#include <cstddef>
#include <cstdio>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// Bytes of one pool of buffers: one buffer if hot, else as many as fill two last-level caches, but at least one.
[[nodiscard]] std::size_t pool_bytes(std::size_t buffer_bytes, Cache cache, std::size_t cache_bytes);

[[nodiscard]] std::size_t memory_needed(const Options& options, int ranks);  // bytes of all ranks together, an upper bound

// Throws Failure if that exceeds the available memory.
void check_memory(const Options& options, int ranks, std::size_t available_bytes);

[[nodiscard]] std::size_t rows_of(const Options& options);  // measurements of a run

void print_plan(const Options& options, int ranks, std::FILE* file);

}  // namespace tnt::bench
