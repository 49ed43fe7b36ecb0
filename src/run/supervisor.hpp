// tnt-run as two processes, so that one ends the processes of the job when the other one is killed.
#pragma once

namespace tnt::run {

// Forks. Returns in the child, which runs the job. The parent passes signals on to it, ends what a killed child has left, and
// exits as it does.
void split();

}  // namespace tnt::run
