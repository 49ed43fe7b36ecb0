#include "run/supervisor.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/rank_process.hpp"

namespace tnt::run {

void split() {
  sigset_t taken;
  sigset_t before;
  (void)::sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) (void)::sigaddset(&taken, number);
  (void)::sigprocmask(SIG_BLOCK, &taken, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    (void)::sigprocmask(SIG_SETMASK, &before, nullptr);  // without a supervisor, then
    return;
  }
  if (child == 0) {
    (void)::setsid();  // a Ctrl-C at a terminal goes to the parent alone
    (void)::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (::getppid() != parent) ::_exit(1);
    (void)::sigprocmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  adopt_orphans();
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    int number = 0;
    (void)::sigwait(&taken, &number);
    if (number != SIGCHLD) (void)::kill(child, number);
  }
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  const End end{.signal = WTERMSIG(status)};
  const int count = kill_descendants();
  fmt::print(stderr, "tnt-run: its process {} {}; {} process{} of the job {} ended\n", child, end.text(), count,
             count == 1 ? "" : "es", count == 1 ? "was" : "were");
  ::_exit(end.exit_code());
}

}  // namespace tnt::run
