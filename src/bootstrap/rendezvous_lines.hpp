// The lines of the rendezvous (rendezvous.hpp), as text: how they arrive at a socket, and what they say. Whoever has found the
// socket's name may send anything, so nothing here trusts its input (tests/fuzz/rendezvous_fuzz.cpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"
#include "tarantella/tarantella.h"

namespace tnt {

constexpr std::size_t max_rendezvous_line = 2048;

// Text that arrives at a socket, up to the first newline.
class LineReader {
 public:
  enum class State { incomplete, complete, failed };

  explicit LineReader(std::size_t max_bytes = max_rendezvous_line) : max_bytes_(max_bytes) {}

  // Reads what is there, and nothing after the newline; blocks if there is nothing. Fails at the end of the file, on an error,
  // and if the line is too long. A descriptor that comes with the text is moved to *received; others are closed.
  State read(const FileDescriptor& socket, FileDescriptor* received = nullptr);

  [[nodiscard]] std::string line() const { return text_.substr(0, text_.find('\n')); }

 private:
  std::size_t max_bytes_;
  std::string text_;
};

// Returns the bytes before the newline; nothing at end of file, on an error or after the deadline. A descriptor that comes with
// them is moved to *received.
[[nodiscard]] std::optional<std::string> read_line(const FileDescriptor& socket, const Deadline& deadline,
                                                   FileDescriptor* received = nullptr,
                                                   std::size_t max_bytes = max_rendezvous_line);

// Sends the line and a newline. Ignores errors: a peer that has gone cannot be told, and will be noticed elsewhere.
void send_line(const FileDescriptor& socket, const std::string& line, const FileDescriptor* descriptor = nullptr);

// For poll: until the deadline, at most a second.
[[nodiscard]] int milliseconds_left(const Deadline& deadline);

// A process' request to rank 0.
struct RendezvousRequest {
  std::string protocol;
  std::string token;
  std::string verb;  // "join" or "exit"
  int rank = -1;
  std::string rest;  // the remaining words

  // The words of a join after the rank; 0 and "" if they are missing.
  struct Join {
    int ranks = 0;
    std::string version;
    std::string port;  // where the rank listens for those above it, if it joins by TCP
  };
  [[nodiscard]] Join join() const;
  [[nodiscard]] std::string exit_code() const;  // of an exit
};

// The request to join, with the version of this library; port: see RendezvousRequest::Join.
[[nodiscard]] std::string join_line(const std::string& token, int rank, int ranks, const std::string& port = "");

// Nothing if the line is no request of ours. The token and the rank are what the line says, and are for the caller to check.
[[nodiscard]] std::optional<RendezvousRequest> parse_request(const std::string& line);

// The reply that says an error, in one line that a reader takes: newlines become blanks, and a long message is cut.
[[nodiscard]] std::string error_line(tnt_status_t status, const std::string& message);

// Throws the error of an error line. The launcher answers in place of a rank 0 that has exited, without a status.
void throw_if_error(const std::string& reply);

// Throws TNT_INVALID_ARGUMENT unless the token is a single word of a line.
void check_token(const std::string& token);

}  // namespace tnt
