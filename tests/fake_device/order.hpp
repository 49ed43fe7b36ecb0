// Whether a copy to the host begins while backward still runs: a kernel of backward is held until it does.
#pragma once

#include <cstdint>

namespace fake_device {

void forward_runs();

void copy_to_host_begins(std::uint64_t bytes);

// Called by a gradient's kernel on its stream, with the bytes of its output. Holds it, if it is the one that was chosen, until
// the chosen copy has begun since the last forward.
void gradient_runs(std::uint64_t bytes);

}  // namespace fake_device
