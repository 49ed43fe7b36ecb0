// A process that is killed or stopped in the middle of its report: the others get one error, which names it.
#include "comm/shm/error_record.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <string>

#include "comm/shm/segment.hpp"

namespace tnt {
namespace {

std::byte* second_page = nullptr;

// What happens to the writer in the middle. Handlers of its fault: it has no access to the second page.
void be_killed(int /*signal*/) { (void)kill(getpid(), SIGKILL); }
void be_stopped(int /*signal*/) {
  (void)kill(getpid(), SIGSTOP);
  (void)mprotect(second_page, page_size(), PROT_READ | PROT_WRITE);  // then it goes on
}

// The record begins at the end of a page, and most of its message is on the next one.
class ErrorRecordTest : public ::testing::Test {
 protected:
  ErrorRecordTest() {
    memory_ = mmap(nullptr, 2 * page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    second_page = static_cast<std::byte*>(memory_) + page_size();
    record_ = reinterpret_cast<ErrorRecord*>(second_page - alignof(ErrorRecord));
  }
  ~ErrorRecordTest() override { munmap(memory_, 2 * page_size()); }

  [[nodiscard]] pid_t fork_writer(void (*in_the_middle)(int)) const {
    const pid_t writer = fork();
    if (writer != 0) return writer;
    (void)signal(SIGSEGV, in_the_middle);
    (void)mprotect(second_page, page_size(), PROT_NONE);
    record_->write(TNT_ABORTED, std::string(1000, 'x'));
    _exit(0);
  }

  void expect_error_of(pid_t writer) const {
    const auto error = record_->read();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), TNT_PEER_LOST);
    EXPECT_EQ(std::string(error->what()), fmt::format("process {} was killed, or stopped, while it reported an error", writer));
  }

  void* memory_;
  ErrorRecord* record_;
};

TEST_F(ErrorRecordTest, AWriterThatWasKilledIsNamed) {
  EXPECT_FALSE(record_->read());
  const pid_t writer = fork_writer(be_killed);
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  record_->write(TNT_TIMEOUT, "of a rank that noticed later");
  expect_error_of(writer);
  expect_error_of(writer);
}

TEST_F(ErrorRecordTest, AWriterThatWasStoppedChangesNothingLater) {
  const pid_t writer = fork_writer(be_stopped);
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, WUNTRACED), writer);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  expect_error_of(writer);
  ASSERT_EQ(kill(writer, SIGCONT), 0);
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_EQ(status, 0);
  expect_error_of(writer);
}

}  // namespace
}  // namespace tnt
