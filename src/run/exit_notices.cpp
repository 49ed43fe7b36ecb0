#include "run/exit_notices.hpp"

#include <sys/socket.h>

#include <utility>

#include "launch/local_socket.hpp"
#include "launch/rendezvous_lines.hpp"

namespace tnt::run {
namespace {

constexpr int tries = 600;  // 0.1 s each: a rank 0 that does not listen then has joined already

// Whether all of it went at once.
bool send_at_once(const FileDescriptor& socket, const std::string& line) {
  const std::string text = line + "\n";
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

}  // namespace

void ExitNotices::on_exit(int rank, int code) {
  if (rank == 0) return listen();
  lines_.push_back(exit_line(token_, rank, code));
  tries_left_ = tries;
}

void ExitNotices::deliver() {
  if (listener_) answer();
  std::erase_if(lines_, [this](const std::string& line) { return send(line); });
  if (--tries_left_ <= 0) lines_.clear();
}

void ExitNotices::listen() {
  lines_.clear();
  listener_ = local_socket(SOCK_NONBLOCK);
  const bool listens = bind_local(listener_, name_) && ::listen(listener_.get(), SOMAXCONN) == 0;
  if (!listens) listener_ = FileDescriptor();  // a child of rank 0 still listens there, and answers itself
}

void ExitNotices::answer() {
  while (true) {
    FileDescriptor rank(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!rank) return;
    if (!same_user(rank)) continue;
    (void)send_at_once(rank, rank_0_ended_line);
    (void)::shutdown(rank.get(), SHUT_WR);
    answered_.push_back(std::move(rank));
  }
}

bool ExitNotices::send(const std::string& line) const {
  const FileDescriptor socket = local_socket(SOCK_NONBLOCK);
  if (!connect_local(socket, name_) || !same_user(socket)) return false;  // another user's must not learn the token
  return send_at_once(socket, line);
}

}  // namespace tnt::run
