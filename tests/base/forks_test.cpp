// Forks: those of a rank know that they are, those of other processes do not, and registered descriptors are closed in both.
#include "base/forks.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "base/file_descriptor.hpp"

namespace tnt {
namespace {

// The exit code of a fork that runs this.
int in_fork(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int fork_of_rank() { return is_fork_of_rank() ? 1 : 0; }

TEST(Forks, OfARankKnowIt) {
  EXPECT_EQ(in_fork(fork_of_rank), 0);
  set_rank(true);
  EXPECT_FALSE(is_fork_of_rank());
  EXPECT_EQ(in_fork(fork_of_rank), 1);
  EXPECT_EQ(in_fork([] { return in_fork(fork_of_rank); }), 1) << "forks of forks";
  EXPECT_FALSE(is_fork_of_rank());
  set_rank(false);
  EXPECT_EQ(in_fork(fork_of_rank), 0);
}

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }

TEST(Forks, CloseRegisteredDescriptorsOnce) {
  const FileDescriptor kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::optional<ClosedInForks> registered(file.get());
  const auto body = [&] {
    if (is_open(file.get()) || !is_open(kept.get())) return 1;
    const FileDescriptor other(dup2(kept.get(), file.get()));  // the same number for another file
    return in_fork([&] { return is_open(other.get()) ? 0 : 2; });
  };
  EXPECT_EQ(in_fork(body), 0);
  EXPECT_TRUE(is_open(file.get()));
  registered.reset();
  EXPECT_EQ(in_fork([&] { return is_open(file.get()) ? 0 : 3; }), 0);
}

}  // namespace
}  // namespace tnt
