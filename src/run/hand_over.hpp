// Several hosts: tnt-run becomes the program that starts ranks there.
#pragma once

#include <string>
#include <vector>

#include "run/options.hpp"

namespace tnt::run {

// The command line of mpirun or srun. environment: names of variables that ranks get.
[[nodiscard]] std::vector<std::string> starter_command(const Options& options, const std::vector<std::string>& environment);

// The names of this process' variables that ranks on other hosts get as well.
[[nodiscard]] std::vector<std::string> passed_on();

// Does not return, but by Exit: the program cannot be started.
[[noreturn]] void become(const std::vector<std::string>& command);

// As a shell would take it.
[[nodiscard]] std::string quoted(const std::vector<std::string>& command);

}  // namespace tnt::run
