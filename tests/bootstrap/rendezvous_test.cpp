// The rendezvous: who may join, what each rank is told when a rank cannot join, and what foreign processes may send.
#include "bootstrap/rendezvous.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <vector>

#include "comm/shm/segment.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

struct Outcome {
  tnt_status_t status = TNT_SUCCESS;
  std::string message;
  ino_t segment = 0;
};

ino_t inode(const FileDescriptor& descriptor) {
  struct stat status {};
  EXPECT_EQ(fstat(descriptor.get(), &status), 0);
  return status.st_ino;
}

class RendezvousTest : public ::testing::Test {
 protected:
  [[nodiscard]] Settings settings(int rank, int ranks, double timeout = 30.0) const {
    Settings result;
    result.rank = rank;
    result.ranks = ranks;
    result.rendezvous = name;
    result.token = "secret";
    result.timeout = timeout;
    return result;
  }

  // Joins as the rank of the settings, in a thread.
  static std::future<Outcome> start(const Settings& settings) {
    return std::async(std::launch::async, [settings] {
      try {
        if (settings.rank > 0) return Outcome{TNT_SUCCESS, "", inode(join_rendezvous(settings))};
        const FileDescriptor segment = Segment::create();
        lead_rendezvous(settings, segment);
        return Outcome{TNT_SUCCESS, "", inode(segment)};
      } catch (const Error& error) {
        return Outcome{error.status(), error.what()};
      }
    });
  }

  [[nodiscard]] std::pair<sockaddr_un, socklen_t> address() const {
    sockaddr_un result{};
    result.sun_family = AF_UNIX;
    std::memcpy(result.sun_path + 1, name.data(), name.size());
    return {result, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }

  // A process that is not a rank: connects as soon as rank 0 listens, and sends text.
  [[nodiscard]] FileDescriptor connected(const std::string& text) const {
    const auto [to, length] = address();
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) std::this_thread::yield();
    EXPECT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    return socket;
  }

  const std::string name = "tnt-test-" + std::to_string(std::random_device()());
};

void expect_all(std::vector<std::future<Outcome>>& outcomes, tnt_status_t status, const std::string& message) {
  for (auto& outcome : outcomes) {
    const Outcome seen = outcome.get();
    EXPECT_EQ(seen.status, status) << seen.message;
    EXPECT_EQ(seen.message, message);
  }
}

TEST_F(RendezvousTest, EveryRankGetsTheSameSegment) {
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {5, 3, 1, 0, 2, 4}) outcomes.push_back(start(settings(rank, 6)));
  std::vector<ino_t> segments;
  for (auto& outcome : outcomes) {
    const Outcome seen = outcome.get();
    EXPECT_EQ(seen.status, TNT_SUCCESS) << seen.message;
    segments.push_back(seen.segment);
  }
  for (const ino_t segment : segments) EXPECT_EQ(segment, segments[0]);
}

TEST_F(RendezvousTest, WhoDoesNotComeIsNamedToAll) {
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {0, 2}) outcomes.push_back(start(settings(rank, 5, 0.5)));
  expect_all(outcomes, TNT_TIMEOUT, "rank 1, rank 3, rank 4 did not join within 0.5 s");
}

TEST_F(RendezvousTest, OfManyThatDoNotComeTheFirstAreNamed) {
  const std::string message = start(settings(0, 300, 0.1)).get().message;
  EXPECT_EQ(message.find("rank 1, rank 2, rank 3, "), 0U) << message;
  EXPECT_NE(message.find(", rank 16 and 283 others did not join within 0.1 s"), std::string::npos) << message;
}

TEST_F(RendezvousTest, JoiningMayHaveADeadlineOfItsOwn) {
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {0, 1}) {
    Settings own = settings(rank, 3);
    own.join_timeout = 0.3;
    outcomes.push_back(start(own));
  }
  expect_all(outcomes, TNT_TIMEOUT, "rank 2 did not join within 0.3 s");
}

TEST_F(RendezvousTest, WithoutRankZeroItIsNamed) {
  std::vector<std::future<Outcome>> outcomes;
  outcomes.push_back(start(settings(1, 2, 0.1)));
  expect_all(outcomes, TNT_TIMEOUT, "rank 0 did not join within 0.1 s");
}

TEST_F(RendezvousTest, ARankZeroThatIsStoppedBehindAFullQueueIsNamed) {
  const auto [own, length] = address();
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), length), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const FileDescriptor first = connected("");  // fills the queue
  const Outcome outcome = start(settings(1, 2, 0.5)).get();
  EXPECT_EQ(outcome.status, TNT_TIMEOUT);
  EXPECT_EQ(outcome.message, "rank 0 did not join within 0.5 s");
}

TEST_F(RendezvousTest, TwoOfOneRankAreToldBoth) {
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {0, 1, 1}) outcomes.push_back(start(settings(rank, 3)));
  expect_all(outcomes, TNT_MISMATCH, "two processes claim to be rank 1");
}

TEST_F(RendezvousTest, TwoRanksZeroAreNamed) {
  auto first = start(settings(0, 2));
  (void)connected("");  // returns when rank 0 listens
  const Outcome second = start(settings(0, 2)).get();
  EXPECT_EQ(second.status, TNT_SYSTEM);
  EXPECT_NE(second.message.find("TNT_RANK=0"), std::string::npos) << second.message;
  EXPECT_EQ(start(settings(1, 2)).get().status, TNT_SUCCESS);
  EXPECT_EQ(first.get().status, TNT_SUCCESS);
}

TEST_F(RendezvousTest, AnotherSizeIsTold) {
  std::vector<std::future<Outcome>> outcomes;
  outcomes.push_back(start(settings(0, 2)));
  outcomes.push_back(start(settings(1, 3)));
  expect_all(outcomes, TNT_MISMATCH, "rank 1 was started for 3 ranks, rank 0 for 2");
}

TEST_F(RendezvousTest, ARankTooHighIsSentAwayAndTheJobGoesOn) {
  auto leader = start(settings(0, 2));
  const Outcome stray = start(settings(2, 3)).get();
  EXPECT_EQ(stray.status, TNT_MISMATCH);
  EXPECT_EQ(stray.message, "rank 2 is not a rank of this job of 2");
  EXPECT_EQ(start(settings(1, 2)).get().status, TNT_SUCCESS);
  EXPECT_EQ(leader.get().status, TNT_SUCCESS);
}

TEST_F(RendezvousTest, AnotherTokenIsSentAwayAndTheJobGoesOn) {
  auto leader = start(settings(0, 2));
  Settings wrong = settings(1, 2);
  wrong.token = "guess";
  const Outcome refused = start(wrong).get();
  EXPECT_EQ(refused.status, TNT_MISMATCH);
  EXPECT_EQ(refused.message,
            "rank 1 has another token than rank 0: give all ranks the same (TNT_TOKEN, or tnt_init_options_t.token)");
  EXPECT_EQ(start(settings(1, 2)).get().status, TNT_SUCCESS);
  EXPECT_EQ(leader.get().status, TNT_SUCCESS);
}

TEST_F(RendezvousTest, WhoIsOnItsWayWhenTheOthersFailIsTold) {
  auto leader = start(settings(0, 3));
  auto wrong = start(settings(1, 4));
  const Outcome seen = wrong.get();
  const Outcome late = start(settings(2, 3)).get();
  EXPECT_EQ(late.status, TNT_MISMATCH);
  EXPECT_EQ(late.message, seen.message);
  EXPECT_EQ(leader.get().message, seen.message);
}

TEST_F(RendezvousTest, AnotherVersionIsTold) {
  auto leader = start(settings(0, 2));
  const FileDescriptor old = connected("tarantella 1 secret join 1 2 0.0.9\n");
  const Outcome seen = leader.get();
  EXPECT_EQ(seen.status, TNT_MISMATCH);
  EXPECT_NE(seen.message.find("rank 1 runs Tarantella 0.0.9"), std::string::npos) << seen.message;
}

TEST_F(RendezvousTest, TheLaunchersWordThatARankWillNotComeIsPassedOn) {
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {0, 1}) outcomes.push_back(start(settings(rank, 3)));
  (void)connected("tarantella 1 secret exit 2 7\n");
  expect_all(outcomes, TNT_PEER_LOST, "rank 2 exited with code 7 before it joined");
}

TEST_F(RendezvousTest, ARankThatEndsAfterItJoinedIsNamed) {
  auto leader = start(settings(0, 3));
  (void)connected("tarantella 1 secret join 1 3 " + std::string(tnt_version()) + "\n");  // and closed
  const Outcome seen = leader.get();
  EXPECT_EQ(seen.status, TNT_PEER_LOST);
  EXPECT_EQ(seen.message, "rank 1 ended before all ranks had joined");
}

TEST_F(RendezvousTest, WhatRankZeroCannotPrepareIsToldToAll) {
  auto leader = std::async(std::launch::async, [settings = settings(0, 3)] {
    try {
      lead_rendezvous(settings, Segment::create(), [] { fail(TNT_INVALID_ARGUMENT, "nonsense in a file"); });
    } catch (const Error& error) {
      return Outcome{error.status(), error.what()};
    }
    return Outcome{};
  });
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {1, 2}) outcomes.push_back(start(settings(rank, 3)));
  outcomes.push_back(std::move(leader));
  expect_all(outcomes, TNT_INVALID_ARGUMENT, "nonsense in a file");
}

TEST_F(RendezvousTest, StrangersAreNotHeard) {
  auto leader = start(settings(0, 2));
  for (const char* text :
       {"", "\n", "tarantella\n", "GET / HTTP/1.1\n\n", "tarantella 1 guess exit 1 0\n", "tarantella 1 secret",
        "tarantella 1 secret dance 1\n", "tarantella 1 secret join one 2 0\n", "\xff\xfe\n"}) {
    (void)connected(text);
  }
  (void)connected(std::string(5000, 'x'));
  EXPECT_EQ(start(settings(1, 2)).get().status, TNT_SUCCESS);
  EXPECT_EQ(leader.get().status, TNT_SUCCESS);
}

TEST_F(RendezvousTest, SilentStrangersDelayNobody) {
  auto leader = start(settings(0, 3, 5));
  std::vector<FileDescriptor> silent;  // more than it listens to at a time, and more than have time before the deadline
  for (int i = 0; i < 300; ++i) silent.push_back(connected(i % 2 == 0 ? "" : "tarantella 1 sec"));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::future<Outcome>> outcomes;
  for (const int rank : {1, 2}) outcomes.push_back(start(settings(rank, 3, 5)));
  outcomes.push_back(std::move(leader));
  for (auto& outcome : outcomes) EXPECT_EQ(outcome.get().status, TNT_SUCCESS);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));  // of one silent stranger
}

TEST_F(RendezvousTest, ARequestMayComeInPieces) {
  auto leader = start(settings(0, 2));
  const FileDescriptor socket = connected("tarantella 1 secr");
  EXPECT_EQ(start(settings(1, 3)).get().status, TNT_MISMATCH);  // has been heard meanwhile
  EXPECT_EQ(leader.get().status, TNT_MISMATCH);
  auto next = start(settings(0, 2));
  const std::string whole = "tarantella 1 secret join 1 2 " + std::string(tnt_version()) + "\n";
  const FileDescriptor rank = connected(whole.substr(0, 25));
  ASSERT_GT(send(rank.get(), whole.data() + 25, whole.size() - 25, MSG_NOSIGNAL), 0);
  EXPECT_EQ(next.get().status, TNT_SUCCESS);
}

TEST_F(RendezvousTest, WhoStandsInForRankZeroIsHeard) {
  const auto [at, length] = address();
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), length), 0);
  ASSERT_EQ(listen(listener.get(), 4), 0);
  struct Answer {
    const char* text;
    tnt_status_t status;
    const char* message;
  };
  for (const Answer& answer :
       {Answer{"error rank 0 exited\n", TNT_PEER_LOST, "rank 0 exited"},
        Answer{"error TNT_TIMEOUT rank 7\n", TNT_TIMEOUT, "rank 7"},
        Answer{"hello\n", TNT_SYSTEM, "rank 0 answered 'hello' instead of sending the shared segment"},
        Answer{"ok\n", TNT_SYSTEM, "rank 0 answered 'ok' instead of sending the shared segment"},
        Answer{"", TNT_PEER_LOST, "rank 0 ended, or refused this process, before all ranks had joined"}}) {
    auto rank = start(settings(1, 2));
    const FileDescriptor socket(accept(listener.get(), nullptr, nullptr));
    ASSERT_GE(send(socket.get(), answer.text, std::strlen(answer.text), MSG_NOSIGNAL), 0);
    shutdown(socket.get(), SHUT_WR);
    const Outcome seen = rank.get();
    EXPECT_EQ(seen.status, answer.status) << seen.message;
    EXPECT_EQ(seen.message, answer.message);
  }
}

TEST_F(RendezvousTest, NamesAndTokensThatCannotWorkAreRefusedAtOnce) {
  for (const char* token : {"", "two words", "line\nbreak"}) {
    for (const int rank : {0, 1}) {
      Settings wrong = settings(rank, 2);
      wrong.token = token;
      EXPECT_EQ(start(wrong).get().status, TNT_INVALID_ARGUMENT) << token;
    }
  }
  Settings wrong = settings(1, 2);
  wrong.rendezvous = std::string(200, 'n');
  EXPECT_EQ(start(wrong).get().status, TNT_INVALID_ARGUMENT);
}

// Found while fuzzing: the other ranks took no reply that was longer, or had a newline, and said that rank 0 had ended.
TEST_F(RendezvousTest, AnErrorOfAnyLengthReachesTheOthers) {
  const std::string path(3000, 'x');
  auto rank0 = std::async(std::launch::async, [&] {
    const FileDescriptor segment = Segment::create();
    try {
      lead_rendezvous(settings(0, 2), segment, [&] { fail(TNT_INVALID_ARGUMENT, "tuning file {}\n cannot be read", path); });
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    }
  });
  const Outcome rank1 = start(settings(1, 2)).get();
  rank0.get();
  EXPECT_EQ(rank1.status, TNT_INVALID_ARGUMENT) << rank1.message;
  EXPECT_TRUE(rank1.message.starts_with("tuning file xxx")) << rank1.message;
  EXPECT_TRUE(rank1.message.ends_with("xxx...")) << rank1.message;
}

}  // namespace
}  // namespace tnt
