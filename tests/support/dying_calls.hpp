// Kills this process in the middle of what it does, right before a system call that others can see.
#pragma once

namespace tnt::testing {

// Counts such calls of this process from now on, of all threads. Before the one with this number, from 0, SIGKILL ends it.
void die_before_call(int number) noexcept;

// Stops counting.
void live_on() noexcept;

}  // namespace tnt::testing
