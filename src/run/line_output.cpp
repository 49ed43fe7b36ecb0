#include "run/line_output.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace tnt::run {
namespace {

constexpr std::size_t longest_line = std::size_t{1024} * 1024;  // a longer one is broken
constexpr std::size_t read_bytes = std::size_t{64} * 1024;

}  // namespace

void Sink::write(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size() && error_ == 0 && !gone_) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd writable{descriptor_, POLLOUT, 0};
      (void)::poll(&writable, 1, -1);
    } else if (errno == EPIPE) {
      gone_ = true;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

void LineOutput::pump() {
  std::array<char, read_bytes> bytes;
  while (pipe_) {
    const ssize_t count = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return close();
    incomplete_.append(bytes.data(), static_cast<std::size_t>(count));
    const std::size_t end = incomplete_.rfind('\n');
    if (end != std::string::npos) {
      const std::string lines = incomplete_.substr(0, end + 1);
      incomplete_.erase(0, end + 1);
      pass_on(lines);
    } else if (incomplete_.size() > longest_line) {
      pass_on(std::exchange(incomplete_, "") + "\n");
    }
    if (static_cast<std::size_t>(count) < bytes.size()) return;
  }
}

void LineOutput::close() {
  if (!incomplete_.empty()) pass_on(std::exchange(incomplete_, "") + "\n");
  pipe_ = FileDescriptor();
}

void LineOutput::pass_on(const std::string& lines) {
  if (prefix_.empty()) return sink_.write(lines);
  std::string text;
  std::size_t begin = 0;
  while (begin < lines.size()) {
    const std::size_t end = lines.find('\n', begin) + 1;
    text += prefix_;
    text.append(lines, begin, end - begin);
    begin = end;
  }
  sink_.write(text);
}

}  // namespace tnt::run
