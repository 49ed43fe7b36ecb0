// The command line of tnt-run.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "run/hosts.hpp"

namespace tnt::run {

struct Options {
  int ranks = 0;
  std::vector<Host> hosts;  // empty: this one
  std::string mpirun;       // empty: the usual one, where it is needed
  bool srun = false;
  bool prefix = true;
  bool dry_run = false;
  bool keep_going = false;  // if a rank fails, the others are not ended
  std::vector<std::string> command;
};

// The text is all that is to be said; code is the exit code.
class Exit : public std::runtime_error {
 public:
  Exit(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

// Throws Exit: with code 2 for what makes no sense, with code 0 for the text of --help and --version.
[[nodiscard]] Options read_options(int argc, const char* const* argv);

}  // namespace tnt::run
