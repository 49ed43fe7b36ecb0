// The environment of a result: processor, memory, versions. Shown at the head of every output.
#pragma once

#include <cstddef>
#include <string>

#include "benchmarks/runs.hpp"

namespace tnt::bench {

[[nodiscard]] Header describe_machine(const Options& options, const Team& team, const Backends& backends);

[[nodiscard]] std::size_t available_memory();  // bytes that are available without swapping

[[nodiscard]] std::string beside_this_program(const std::string& relative);

}  // namespace tnt::bench
