#include "comm/tcp/tcp_connection.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{64} * 1024;

void set_option(int socket, int level, int name, int value) {
  if (::setsockopt(socket, level, name, &value, sizeof(value)) != 0) fail_errno("cannot set up a TCP connection");
}

// Data in flight on a reset connection never arrives.
bool is_reset(const FileDescriptor& socket) noexcept {
  tcp_info found{};
  socklen_t bytes = sizeof(found);
  return ::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &found, &bytes) == 0 && found.tcpi_state == TCP_CLOSE;
}

// A host that is switched off sends no end of its connections. Probes of an idle connection find out after 25 s.
void prepare(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  if (::fcntl(socket, F_SETFL, O_NONBLOCK) != 0) fail_errno("cannot set up a TCP connection");
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

std::string peer_host(int socket) {
  sockaddr_storage there{};
  socklen_t length = sizeof(there);
  std::array<char, NI_MAXHOST> host{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&there), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  const std::string_view text = host.data();
  constexpr std::string_view mapped = "::ffff:";  // IPv4 on a socket of IPv6
  return std::string(text.starts_with(mapped) ? text.substr(mapped.size()) : text);
}

TcpConnection::TcpConnection(FileDescriptor socket, int peer)
    : socket_(std::move(socket)), closed_in_forks_(socket_.get()), peer_(peer), buffer_(buffer_bytes) {
  prepare(socket_.get());
}

void TcpConnection::end() noexcept {
  ended_ = true;
  for (Outgoing& one : outgoing_) one.message->done = true;
  outgoing_.clear();
}

void TcpConnection::send(std::shared_ptr<TcpTransfer> message, int tag) {
  if (ended_) {
    message->done = true;
    return;
  }
  const std::size_t bytes = message->bytes;
  outgoing_.push_back({{tag, bytes}, std::move(message)});
  if (outgoing_.size() == 1) flush();
}

void TcpConnection::flush() {
  while (!outgoing_.empty() && !ended_) {
    Outgoing& first = outgoing_.front();
    std::array<iovec, 2> parts{};
    msghdr message{};
    message.msg_iov = parts.data();
    const std::size_t header_sent = std::min(first.sent, sizeof(Header));
    const std::size_t data_sent = first.sent - header_sent;
    const auto add = [&](void* data, std::size_t bytes) {
      if (bytes > 0) parts[message.msg_iovlen++] = {data, bytes};
    };
    add(reinterpret_cast<std::byte*>(&first.header) + header_sent, sizeof(Header) - header_sent);
    add(first.message->data + data_sent, first.message->bytes - data_sent);
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (!would_block()) end();
      return;
    }
    first.sent += static_cast<std::size_t>(sent);
    if (first.sent < sizeof(Header) + first.message->bytes) return;  // the socket is full
    first.message->done = true;
    outgoing_.pop_front();
  }
}

void TcpConnection::finish_if_complete(TcpReceiver& receiver) {
  if (incoming_bytes_ < header_.bytes) return;
  receiver.complete(*incoming_);
  incoming_.reset();
  header_bytes_ = incoming_bytes_ = 0;
}

// Takes messages, and parts of them, from the buffer.
void TcpConnection::take(const std::byte* data, std::size_t bytes, TcpReceiver& receiver) {
  while (bytes > 0) {
    std::size_t part = 0;
    if (!incoming_) {
      part = std::min(bytes, sizeof(Header) - header_bytes_);
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_bytes_, data, part);
      header_bytes_ += part;
      if (header_bytes_ == sizeof(Header)) {
        incoming_ = receiver.begin(peer_, static_cast<int>(header_.tag), header_.bytes);
        finish_if_complete(receiver);  // a message may be empty
      }
    } else {
      part = std::min(bytes, header_.bytes - incoming_bytes_);
      std::memcpy(incoming_->data + incoming_bytes_, data, part);
      incoming_bytes_ += part;
      finish_if_complete(receiver);
    }
    data += part;
    bytes -= part;
  }
}

void TcpConnection::receive(TcpReceiver& receiver) {
  while (!ended_) {
    const std::size_t missing = incoming_ ? header_.bytes - incoming_bytes_ : 0;
    const bool direct = missing >= buffer_.size();  // a large message goes to its place without a copy
    std::byte* const to = direct ? incoming_->data + incoming_bytes_ : buffer_.data();
    const std::size_t room = direct ? missing : buffer_.size();
    const ssize_t got = ::recv(socket_.get(), to, room, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0 || !would_block()) end();
      return;
    }
    const auto bytes = static_cast<std::size_t>(got);
    if (direct) {
      incoming_bytes_ += bytes;
      finish_if_complete(receiver);
    } else {
      take(buffer_.data(), bytes, receiver);
    }
    if (bytes < room) return;  // that was all
  }
}

void TcpConnection::end_sending() noexcept { (void)::shutdown(socket_.get(), SHUT_WR); }

bool TcpConnection::closing() noexcept {
  while (!ended_) {
    const ssize_t got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || !would_block()) ended_ = true;
    break;
  }
  if (is_reset(socket_)) return false;
  int unsent = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &unsent) == 0 && unsent > 0;
}

}  // namespace tnt
