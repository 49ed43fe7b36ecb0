#include "bootstrap/rendezvous_lines.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/file_descriptor.hpp"

namespace tnt {
namespace {

std::array<FileDescriptor, 2> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TEST(LineReader, TakesASignalOrAnEmptySocketForNoEnd) {
  const auto [here, there] = connection();
  LineReader reader;
  struct sigaction noted {};
  noted.sa_handler = [](int) {};  // without SA_RESTART: recv returns EINTR
  struct sigaction before {};
  ::sigaction(SIGUSR2, &noted, &before);
  const pthread_t self = ::pthread_self();
  std::thread other([self] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::pthread_kill(self, SIGUSR2);
  });
  EXPECT_EQ(reader.read(here), LineReader::State::incomplete);  // waits until the signal comes
  other.join();
  ::sigaction(SIGUSR2, &before, nullptr);

  ::fcntl(here.get(), F_SETFL, O_NONBLOCK);
  EXPECT_EQ(reader.read(here), LineReader::State::incomplete);
  send_line(there, "a line");
  EXPECT_EQ(reader.read(here), LineReader::State::complete);
  EXPECT_EQ(reader.line(), "a line");
}

TEST(LineReader, SeesTheEnd) {
  auto [here, there] = connection();
  LineReader reader;
  there = FileDescriptor();
  EXPECT_EQ(reader.read(here), LineReader::State::failed);
}

}  // namespace
}  // namespace tnt
