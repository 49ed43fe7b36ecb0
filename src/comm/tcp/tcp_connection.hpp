// Messages on one TCP connection. Each is a header and its bytes, in the order of sending.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.hpp"
#include "base/forks.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// A message that is sent or received. `done` may be read by any thread; everything else needs the network's lock.
struct TcpTransfer {
  std::shared_ptr<void> memory;  // owns data
  std::byte* data = nullptr;
  std::size_t bytes = 0;                    // of a message; of a receive: its capacity
  std::shared_ptr<TcpTransfer> claimed_by;  // of a message that came early: the receive that takes it when it is complete
  bool cancelled = false;                   // of a receive
  std::atomic<bool> done{false};
};

// Finds the place for a message whose header has arrived.
class TcpReceiver : NonCopyable {
 public:
  virtual ~TcpReceiver() = default;
  // Returns a transfer with room for the bytes. Throws TNT_SYSTEM if its receive is too small.
  [[nodiscard]] virtual std::shared_ptr<TcpTransfer> begin(int from, int tag, std::size_t bytes) = 0;
  virtual void complete(TcpTransfer& transfer) = 0;
};

// The address of the other end as a number; "" if the connection has ended.
[[nodiscard]] std::string peer_host(int socket);

// Not thread-safe. No function blocks. An error of the socket ends the connection, as its orderly end does: nothing more
// arrives then, and what is sent is dropped.
class TcpConnection {
 public:
  // socket: connected. peer: the rank at its other end.
  TcpConnection(FileDescriptor socket, int peer);

  void send(std::shared_ptr<TcpTransfer> message, int tag);
  void flush();                                                                  // sends what the socket takes now
  [[nodiscard]] bool has_unsent() const noexcept { return !outgoing_.empty(); }  // then call flush again
  void receive(TcpReceiver& receiver);                                           // takes what has arrived
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  // Ends this side. Then `closing` is true until the peer's system has everything that was sent; it drops what still arrives,
  // because closing a socket with unread data would also drop data that is on its way to the peer.
  void end_sending() noexcept;
  [[nodiscard]] bool closing() noexcept;

 private:
  struct Header {
    std::int64_t tag;
    std::uint64_t bytes;
  };
  struct Outgoing {
    Header header;
    std::shared_ptr<TcpTransfer> message;
    std::size_t sent = 0;  // of header and data
  };
  void take(const std::byte* data, std::size_t bytes, TcpReceiver& receiver);
  void finish_if_complete(TcpReceiver& receiver);
  void end() noexcept;

  FileDescriptor socket_;
  ClosedInForks closed_in_forks_;
  int peer_;
  bool ended_ = false;
  std::deque<Outgoing> outgoing_;
  std::vector<std::byte> buffer_;  // of small messages, which arrive many at a time
  Header header_{};
  std::size_t header_bytes_ = 0;           // that have arrived
  std::shared_ptr<TcpTransfer> incoming_;  // the message after a complete header
  std::size_t incoming_bytes_ = 0;         // that have arrived
};

}  // namespace tnt
