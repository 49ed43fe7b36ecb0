// The output of one rank: whole lines go to a stream of tnt-run's, with the rank before them.
#pragma once

#include <string>

#include "base/file_descriptor.hpp"

namespace tnt::run {

// Standard output or error of tnt-run itself.
class Sink {
 public:
  explicit Sink(int descriptor) : descriptor_(descriptor) {}

  // Writes all of it, and waits if it has to. After an error everything is dropped; a reader that has gone is none.
  void write(const std::string& text);
  [[nodiscard]] bool lost() const noexcept { return error_ != 0; }
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int descriptor_;
  int error_ = 0;
  bool gone_ = false;
};

class LineOutput {
 public:
  LineOutput(FileDescriptor pipe, std::string prefix, Sink& sink)
      : pipe_(std::move(pipe)), prefix_(std::move(prefix)), sink_(sink) {}

  [[nodiscard]] int descriptor() const noexcept { return pipe_.get(); }
  [[nodiscard]] bool open() const noexcept { return static_cast<bool>(pipe_); }
  // Passes on what is there. At the end of the pipe the last line, which may be incomplete, is passed on as well.
  void pump();
  // The same without waiting for the end.
  void close();

 private:
  void pass_on(const std::string& lines);

  FileDescriptor pipe_;
  std::string prefix_;
  Sink& sink_;
  std::string incomplete_;
};

}  // namespace tnt::run
