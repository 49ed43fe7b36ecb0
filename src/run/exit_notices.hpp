// While ranks join: whoever has ended will not come, and the others are told so on the socket of their rendezvous
// (src/launch/rendezvous.hpp). Without it they would wait for their deadline.
#pragma once

#include <string>
#include <vector>

#include "base/file_descriptor.hpp"

namespace tnt::run {

class ExitNotices {
 public:
  ExitNotices(std::string name, std::string token) : name_(std::move(name)), token_(std::move(token)) {}

  // A rank has exited with code 0. Rank 0 is told, until it listens no more; instead of a rank 0, this process answers.
  void on_exit(int rank, int code);
  // Sends what is due. To be called every now and then.
  void deliver();
  [[nodiscard]] bool pending() const noexcept { return !lines_.empty() || listener_; }

 private:
  void listen();
  void answer();
  [[nodiscard]] bool send(const std::string& line) const;

  std::string name_;
  std::string token_;
  std::vector<std::string> lines_;
  int tries_left_ = 0;
  FileDescriptor listener_;
  std::vector<FileDescriptor> answered_;  // closed at the end: a rank's message must not fail before it has read ours
};

}  // namespace tnt::run
