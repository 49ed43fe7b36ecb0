// The lines of the rendezvous. The first byte says in which pieces the others arrive at the socket.
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "bootstrap/rendezvous_lines.hpp"
#include "common/error.hpp"
#include "fuzz/fuzz.hpp"

namespace {

using tnt::LineReader;
using tnt::fuzz::require;

// A line as it arrives; nothing if the reader takes none.
std::optional<std::string> arrived(const std::string& text, std::size_t piece) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "there are sockets");
  const tnt::FileDescriptor reading(ends[0]);
  tnt::FileDescriptor writing(ends[1]);
  LineReader reader;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const std::size_t length = std::min(piece, text.size() - at);
    require(::send(writing.get(), text.data() + at, length, MSG_NOSIGNAL) == static_cast<ssize_t>(length), "a piece is sent");
    std::array<char, 1> next{};
    while (::recv(reading.get(), next.data(), 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
      const auto state = reader.read(reading);
      if (state == LineReader::State::complete) return reader.line();
      if (state == LineReader::State::failed) return std::nullopt;
    }
  }
  writing = tnt::FileDescriptor();
  return std::nullopt;
}

void check_request(const std::string& line) {
  const auto request = tnt::parse_request(line);
  if (!request) return;
  require(line.find(request->token) != std::string::npos, "the token is that of the line");
  (void)request->join();
  require(request->exit_code().size() <= line.size(), "the code is that of the line");
  try {
    tnt::check_token(request->token);
  } catch (const tnt::Error& error) {
    tnt::fuzz::require_sentence(error.what());
  }
}

// What one side says, the other side understands: the same status and words, but for newlines and what is too long.
void check_error(const std::string& message) {
  const std::string line = tnt::error_line(TNT_MISMATCH, message);
  const auto taken = arrived(line + "\n", 100);
  require(taken == line, "an error arrives");
  try {
    tnt::throw_if_error(*taken);
    require(false, "an error is known as one");
  } catch (const tnt::Error& error) {
    require(error.status() == TNT_MISMATCH, "the status arrives");
    std::string expected = message;
    std::replace(expected.begin(), expected.end(), '\n', ' ');
    if (line.ends_with("...")) expected = std::string(error.what());
    require(error.what() == std::string(expected.c_str()), "the words arrive");
  }
}

void check_reply(const std::string& line) {
  try {
    tnt::throw_if_error(line);
    require(!line.starts_with("error "), "an error is thrown");
  } catch (const tnt::Error& error) {
    require(error.status() != TNT_SUCCESS, "an error is no success");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text = tnt::fuzz::text_of(data + 1, size - 1);
  const auto line = arrived(text, std::size_t{1} + data[0]);
  if (line) {
    require(line->size() < text.size() && line->find('\n') == std::string::npos, "a line ends at the newline");
    check_request(*line);
    check_reply(*line);
  }
  check_error(text);
  return 0;
}
