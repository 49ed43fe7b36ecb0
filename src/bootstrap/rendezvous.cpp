#include "bootstrap/rendezvous.hpp"

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/rendezvous_lines.hpp"
#include "bootstrap/rendezvous_server.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr double grace_for_rank_0 = 5.0;  // seconds after the deadline for rank 0's message, which names the missing ranks

FileDescriptor stream_socket(const std::string& name) {
  if (name.size() > max_local_name) {
    fail(TNT_INVALID_ARGUMENT, "TNT_RENDEZVOUS={}: longer than a socket name may be", name);
  }
  FileDescriptor socket = local_socket();
  if (!socket) fail_errno("cannot make a socket to find the other ranks");
  return socket;
}

// A queue that is full, of a rank 0 that is stopped, keeps connect waiting for so long.
void limit_connect(const FileDescriptor& socket, timeval limit) {
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) fail_errno("cannot limit a wait");
}

FileDescriptor listen(const Settings& settings) {
  FileDescriptor listener = stream_socket(settings.rendezvous);
  if (!bind_local(listener, settings.rendezvous)) {
    fail_errno(fmt::format("rank 0 cannot listen on {} (is TNT_RANK=0 set for two processes?)", settings.rendezvous));
  }
  if (::listen(listener.get(), settings.ranks + 16) != 0) fail_errno("rank 0 cannot listen for the other ranks");
  return listener;
}

FileDescriptor connect(const Settings& settings, const Deadline& deadline, const std::function<void()>& check) {
  while (true) {
    if (check) check();
    FileDescriptor socket = stream_socket(settings.rendezvous);
    limit_connect(socket, {.tv_sec = 0, .tv_usec = 200'000});
    if (connect_local(socket, settings.rendezvous)) {
      limit_connect(socket, {});
      if (same_user(socket)) return socket;
      fail(TNT_SYSTEM, "TNT_RENDEZVOUS={} is in use by another user's process", settings.rendezvous);
    }
    if (deadline.passed()) fail(TNT_TIMEOUT, "rank 0 did not join within {} s", deadline.seconds());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void lead_rendezvous(const Settings& settings, const FileDescriptor& segment, const std::function<void()>& prepare,
                     const std::function<void()>& check) {
  check_token(settings.token);
  RendezvousServer server(settings, listen(settings), same_user);
  try {
    const auto& joined = server.wait_for_all(check);
    if (prepare) prepare();
    for (const auto& [rank, one] : joined) send_line(one.socket, "ok", &segment);
  } catch (const Error& error) {
    server.report_error(error);
    throw;
  }
}

FileDescriptor join_rendezvous(const Settings& settings, const std::function<void()>& check) {
  check_token(settings.token);
  const FileDescriptor socket = connect(settings, Deadline(settings.join_seconds()), check);
  const Deadline deadline(settings.join_seconds() + grace_for_rank_0);
  send_line(socket, join_line(settings.token, settings.rank, settings.ranks));
  FileDescriptor segment;
  const auto reply = read_line(socket, deadline, &segment);
  if (!reply && deadline.passed())
    fail(TNT_TIMEOUT, "rank 0 did not report within {} s that all ranks had joined", deadline.seconds());
  if (!reply) fail(TNT_PEER_LOST, "rank 0 ended, or refused this process, before all ranks had joined");
  throw_if_error(*reply);
  if (*reply != "ok" || !segment) fail(TNT_SYSTEM, "rank 0 answered '{}' instead of sending the shared segment", *reply);
  return segment;
}

}  // namespace tnt
