#include "comm/flight_recorder.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::array<int, 3> members{0, 2, 5};
constexpr Call sum{.kind = Call::all_reduce, .dtype = TNT_FLOAT64, .op = TNT_MAX, .count = 7};

FileDescriptor memory(std::size_t bytes = sizeof(FlightRecord)) {
  FileDescriptor made(memfd_create("test", 0));
  EXPECT_EQ(ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
  return made;
}

class FlightRecorderTest : public ::testing::Test {
 protected:
  FlightLane lane(bool messages = false) { return recorder_->open_lane(9, members, 1, "shm", messages); }
  [[nodiscard]] const FlightRecord& record() const { return recorder_->record(); }

  std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>(memory(), 2, 6);
};

TEST_F(FlightRecorderTest, SaysWhoRecords) {
  EXPECT_EQ(record().magic, FlightRecord::magic_number);
  EXPECT_EQ(record().rank, 2U);
  EXPECT_EQ(record().ranks, 6U);
  EXPECT_EQ(record().pid, getpid());
  EXPECT_GT(record().joined_ns, 0);
}

TEST_F(FlightRecorderTest, ACallHasItsBeginAndItsEnd) {
  FlightLane calls = lane();
  calls.begin(sum, 17, "bucket 3", 5'000'000);
  const auto& entry = record().entries[0][0];
  EXPECT_EQ(record().lanes[0].recorded, 1U);
  EXPECT_EQ(record().lanes[0].id, 9U);
  EXPECT_EQ(record().lanes[0].size, 3U);
  EXPECT_EQ(record().lanes[0].members[2], 5);
  EXPECT_STREQ(record().lanes[0].transport.data(), "shm");
  EXPECT_EQ(entry.number(), 17U);
  EXPECT_EQ(entry.count, 7U);
  EXPECT_EQ(entry.what, std::uint64_t{Call::all_reduce} | TNT_FLOAT64 << 8 | TNT_MAX << 16 | std::uint64_t{1} << 48);
  EXPECT_EQ(entry.duration_us(), FlightRecord::Entry::open);
  EXPECT_STREQ(record().names[0].data(), "bucket 3");
  calls.end(5'042'000);
  EXPECT_EQ(entry.begin_ns, 5'000'000);
  EXPECT_EQ(entry.duration_us(), 42U);
}

TEST_F(FlightRecorderTest, ACallWithoutATimeGetsThatOfItsFirstWait) {
  FlightLane calls = lane();
  calls.begin(sum, 1, "", 0);
  calls.end(0);
  EXPECT_EQ(record().entries[0][0].begin_ns, 0);
  EXPECT_EQ(record().entries[0][0].duration_us(), 0U);
  calls.begin(sum, 2, "", 0);
  calls.waits(1'000'000);
  calls.waits(2'000'000);
  calls.still_waits(3'000'000);
  calls.end(4'000'000);
  EXPECT_EQ(record().entries[0][1].begin_ns, 1'000'000);
  EXPECT_EQ(record().entries[0][1].duration_us(), 3000U);
  EXPECT_EQ(record().lanes[0].waiting_ns, 3'000'000);
}

TEST_F(FlightRecorderTest, KeepsTheLastCalls) {
  FlightLane calls = lane();
  for (std::uint64_t number = 1; number <= FlightRecord::n_entries + 3; ++number) calls.begin(sum, number, "", 1);
  EXPECT_EQ(record().lanes[0].recorded, FlightRecord::n_entries + 3);
  EXPECT_EQ(record().entries[0][2].number(), FlightRecord::n_entries + 3);
  EXPECT_EQ(record().entries[0][3].number(), 4U);
  EXPECT_GE(FlightRecord::n_entries, 1000U);
}

TEST_F(FlightRecorderTest, ALaneThatWasClosedIsUsedAgainWhenAllOthersAreTaken) {
  std::vector<FlightLane> open;
  { const FlightLane closed = lane(); }
  EXPECT_EQ(record().lanes[0].state, FlightRecord::LaneState::closed);
  for (std::size_t i = 1; i < FlightRecord::n_lanes; ++i) open.push_back(lane());
  EXPECT_EQ(record().lanes[0].state, FlightRecord::LaneState::closed);
  EXPECT_TRUE(open.emplace_back(lane()).enabled());
  EXPECT_EQ(record().lanes[0].state, FlightRecord::LaneState::used);
  FlightLane none = lane();
  EXPECT_FALSE(none.enabled());
  EXPECT_EQ(record().lanes_missed, 1U);
  none.begin(sum, 1, "name", 1);  // is no fault
  none.waits(1);
  none.still_waits(1);
  none.end(1);
}

TEST_F(FlightRecorderTest, EachNameIsKeptOnce) {
  FlightLane calls = lane();
  std::string text = "bucket 0";
  for (int i = 0; i < 3; ++i) calls.begin(sum, 1, text, 1);
  EXPECT_EQ(record().names_used, 1U);
  text[7] = '1';  // another name at the same address
  calls.begin(sum, 1, text, 1);
  EXPECT_EQ(record().names_used, 2U);
  const std::string equal = "bucket 0";
  calls.begin(sum, 1, equal, 1);
  EXPECT_EQ(record().entries[0][4].what >> 48, 1U);
  calls.begin(sum, 1, std::string(500, 'x'), 1);
  EXPECT_EQ(std::string(record().names[2].data()), std::string(FlightRecord::name_bytes - 1, 'x'));
  for (std::size_t i = 0; i < FlightRecord::n_names; ++i) calls.begin(sum, 1, "name " + std::to_string(i), 1);
  EXPECT_EQ(record().names_used, FlightRecord::n_names);
  EXPECT_EQ(record().entries[0][(6 + FlightRecord::n_names - 1) % FlightRecord::n_entries].what >> 48,
            FlightRecord::name_lost + 1);
}

TEST_F(FlightRecorderTest, AnEndIsNotWrittenToAnotherMessage) {
  FlightLane messages = lane(true);
  const auto first = messages.begin_message({.kind = Call::recv, .root = 5, .count = 1}, "", 1'000'000);
  const auto second = messages.begin_message({.kind = Call::send, .root = 0, .count = 2}, "", 1'000'000);
  FlightLane::end_message(second, 2'000'000);
  EXPECT_EQ(record().lanes[0].messages, 1U);
  EXPECT_EQ(record().entries[0][0].what >> 32, 5U);
  EXPECT_EQ(record().entries[0][0].duration_us(), FlightRecord::Entry::open);
  EXPECT_EQ(record().entries[0][1].duration_us(), 1000U);
  for (std::size_t i = 2; i <= FlightRecord::n_entries; ++i) (void)messages.begin_message(sum, "", 1);
  FlightLane::end_message(first, 2'000'000);
  EXPECT_EQ(record().entries[0][0].duration_us(), FlightRecord::Entry::open);
}

TEST_F(FlightRecorderTest, ProgressHasARate) {
  recorder_->progress(1, 100);
  EXPECT_EQ(record().progress.step, 1U);
  EXPECT_EQ(record().progress.samples_per_second, 0);
  usleep(1'050'000);
  recorder_->progress(2, 1100);
  EXPECT_GT(record().progress.samples_per_second, 0);
  EXPECT_LE(record().progress.samples_per_second, 1000 / 1.05);
  recorder_->progress(1, 100);  // of another training
  EXPECT_EQ(record().progress.samples_per_second, 0);
}

TEST(FlightRecorder, OutlivesItsProcess) {
  const FileDescriptor shared = memory();
  const pid_t child = fork();
  if (child == 0) {
    auto recorder = std::make_shared<FlightRecorder>(shared, 1, 2);
    FlightLane calls = recorder->open_lane(3, std::array{0, 1}, 1, "shm");
    calls.begin(sum, 4, "", 1);
    (void)kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  FlightRecord::Entry entry{};
  ASSERT_EQ(pread(shared.get(), &entry, sizeof(entry), offsetof(FlightRecord, entries)), ssize_t{sizeof(entry)});
  EXPECT_EQ(entry.number(), 4U);
  EXPECT_EQ(entry.duration_us(), FlightRecord::Entry::open);
}

TEST(FlightRecorder, RefusesMemoryOfAnotherVersion) { EXPECT_THROW(FlightRecorder(memory(4096), 0, 1), Error); }

TEST(FlightRecorder, OpensOnlyTheMemoryThatIsNamed) {
  const FileDescriptor given = memory();
  struct stat status {};
  ASSERT_EQ(fstat(given.get(), &status), 0);
  const auto place = [&](ino_t inode) {
    return std::to_string(given.get()) + ":" + std::to_string(status.st_dev) + ":" + std::to_string(inode);
  };
  EXPECT_EQ(FlightRecorder::open("", 0, 1), nullptr);
  EXPECT_EQ(FlightRecorder::open("nonsense", 0, 1), nullptr);
  EXPECT_EQ(FlightRecorder::open(place(status.st_ino + 1), 0, 1), nullptr);
  const auto recorder = FlightRecorder::open(place(status.st_ino), 0, 1);
  ASSERT_NE(recorder, nullptr);
  EXPECT_EQ(recorder->record().ranks, 1U);
}

}  // namespace
}  // namespace tnt
