#include "bootstrap/rendezvous_lines.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr int send_tries = 100;
constexpr std::chrono::milliseconds between_sends{10};

constexpr std::size_t max_token = 1024;
constexpr std::string_view error_prefix = "error ";

// The descriptors that came with a message: the first is moved to *received, the others are closed.
void take_descriptors(msghdr& message, FileDescriptor* received) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {  // there is room for two of them, because of alignment
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(fd), sizeof(fd));
      FileDescriptor owned(fd);
      if (received != nullptr && i == 0) *received = std::move(owned);
    }
  }
}

// The connection is as it was: a signal came, there is nothing to read yet, or the system is short of memory for a moment.
bool is_transient(int error) {
  return error == EINTR || error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

LineReader::State LineReader::read(const FileDescriptor& socket, FileDescriptor* received) {
  std::array<char, 256> buffer{};
  const ssize_t there = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_PEEK);
  if (there < 0 && is_transient(errno)) return State::incomplete;
  if (there <= 0) return State::failed;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(there));
  const std::size_t newline = text.find('\n');
  iovec part{buffer.data(), newline == std::string_view::npos ? text.size() : newline + 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < 0 && is_transient(errno)) return State::incomplete;
  if (n <= 0) return State::failed;
  take_descriptors(message, received);
  text_.append(buffer.data(), static_cast<std::size_t>(n));
  if (text_.ends_with('\n')) return State::complete;
  return text_.size() < max_bytes_ ? State::incomplete : State::failed;
}

std::optional<std::string> read_line(const FileDescriptor& socket, const Deadline& deadline, FileDescriptor* received,
                                     std::size_t max_bytes) {
  LineReader reader(max_bytes);
  while (true) {
    pollfd wait{socket.get(), POLLIN, 0};
    if (::poll(&wait, 1, milliseconds_left(deadline)) < 0 && errno != EINTR) return std::nullopt;
    if (wait.revents == 0) {
      if (deadline.passed()) return std::nullopt;
      continue;
    }
    const auto state = reader.read(socket, received);
    if (state == LineReader::State::complete) return reader.line();
    if (state == LineReader::State::failed) return std::nullopt;
  }
}

void send_line(const FileDescriptor& socket, const std::string& line, const FileDescriptor* descriptor) {
  std::string text = line + "\n";
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  // The other side sees an end of the connection if it has gone, so other errors need no word here.
  for (int tries = 0; ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0 && tries < send_tries; ++tries) {
    if (errno != EINTR && errno != ENOBUFS && errno != ENOMEM) return;
    std::this_thread::sleep_for(between_sends);
  }
}

int milliseconds_left(const Deadline& deadline) {
  const std::int64_t left = (deadline.end_ns() - now_ns()) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

RendezvousRequest::Join RendezvousRequest::join() const {
  std::istringstream words(rest);
  Join found;
  words >> found.ranks >> found.version >> found.port;
  return found;
}

std::string RendezvousRequest::exit_code() const {
  std::istringstream words(rest);
  std::string code;
  words >> code;
  return code;
}

std::string join_line(const std::string& token, int rank, int ranks, const std::string& port) {
  return fmt::format("tarantella 1 {} join {} {} {} {}", token, rank, ranks, tnt_version(), port);
}

std::optional<RendezvousRequest> parse_request(const std::string& line) {
  std::istringstream words(line);
  std::string name;
  RendezvousRequest request;
  words >> name >> request.protocol >> request.token >> request.verb >> request.rank;
  if (!words || name != "tarantella") return std::nullopt;
  std::getline(words, request.rest);
  return request;
}

std::string error_line(tnt_status_t status, const std::string& message) {
  std::string line = fmt::format("{}{} {}", error_prefix, status_name(status), message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  constexpr std::string_view cut = "...";
  constexpr std::size_t longest = max_rendezvous_line - 1;  // and the newline
  if (line.size() > longest) line.replace(longest - cut.size(), std::string::npos, cut);
  return line;
}

void throw_if_error(const std::string& reply) {
  std::string_view text = reply;
  if (!text.starts_with(error_prefix)) return;
  text.remove_prefix(error_prefix.size());
  for (int status = TNT_SUCCESS + 1; status <= TNT_UNSUPPORTED; ++status) {
    const auto known = static_cast<tnt_status_t>(status);
    const std::string start = fmt::format("{} ", status_name(known));
    if (text.starts_with(start)) fail(known, "{}", text.substr(start.size()));
  }
  fail(TNT_PEER_LOST, "{}", text);
}

void check_token(const std::string& token) {
  const bool printable = std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isgraph(c) != 0; });
  if (token.empty() || !printable || token.size() > max_token) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TOKEN: expected 1 to {} characters without blanks", max_token);
  }
}

}  // namespace tnt
