#include "runtime/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace braid {
namespace {

constexpr Nanoseconds kProcessPatience = 60 * kSecond;

bool IsRunning(pid_t pid) { return kill(pid, 0) == 0; }

bool AwaitReadable(const Descriptor& descriptor) {
  pollfd entry{.fd = descriptor.number(), .events = POLLIN};
  int result;
  do {
    result = poll(&entry, 1, kProcessPatience / kMillisecond);
  } while (result < 0 && errno == EINTR);
  return result == 1;
}

// Reads until the last process that has the pipe's other end is gone.
std::string ReadAll(const Descriptor& descriptor) {
  std::string text;
  char buffer[4096];
  while (AwaitReadable(descriptor)) {
    const ssize_t bytes = read(descriptor.number(), buffer, sizeof(buffer));
    if (bytes == 0) return text;
    if (bytes > 0) text.append(buffer, bytes);
  }
  ADD_FAILURE() << "a process still has the pipe's other end";
  return text;
}

// The next line, which its writer writes at once.
std::string ReadLine(const Descriptor& descriptor) {
  char buffer[256];
  const ssize_t bytes = AwaitReadable(descriptor) ? read(descriptor.number(), buffer, 256) : 0;
  return std::string(buffer, bytes > 0 ? bytes : 0);
}

class ProcessTest : public testing::Test {
 protected:
  ~ProcessTest() override {
    On([this] { process_.reset(); });
  }

  void On(const std::function<void()>& fn) {
    const auto done = environment_->MakeEvent();
    reactor_->Post([&] {
      fn();
      done->Set();
    });
    ASSERT_EQ(environment_->Await(*done, kProcessPatience), absl::OkStatus());
  }

  absl::Status Start(const ProcessOptions& options) {
    absl::Status status;
    On([&] {
      auto process = Process::Start(reactor_.get(), options, [this](ExitStatus end) {
        end_ = end;
        ++ends_;
        has_ended_->Set();
      });
      status = process.status();
      if (process.ok()) process_ = *std::move(process);
    });
    return status;
  }
  absl::Status StartShell(const std::string& script, ProcessOptions options = {}) {
    options.command = {"sh", "-c", script};
    return Start(options);
  }
  // With the standard output in a pipe.
  absl::Status StartTalking(const std::string& script, ProcessOptions options = {}) {
    Pipe pipe = *MakePipe();
    output_ = std::move(pipe.read_end);
    options.standard_output = pipe.write_end.number();
    return StartShell(script, options);
  }

  ExitStatus AwaitEnd() {
    EXPECT_EQ(environment_->Await(*has_ended_, kProcessPatience), absl::OkStatus());
    On([] {});
    EXPECT_EQ(ends_, 1);
    EXPECT_TRUE(process_->has_ended());
    EXPECT_FALSE(IsRunning(process_->pid()));  // not even as a zombie
    return end_;
  }
  std::string OutputOf(const std::string& script, ProcessOptions options = {}) {
    EXPECT_EQ(StartTalking(script, std::move(options)), absl::OkStatus());
    std::string text = ReadAll(output_);
    EXPECT_EQ(AwaitEnd(), ExitStatus{});
    return text;
  }

  std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  std::unique_ptr<Event> has_ended_ = environment_->MakeEvent();
  std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("process test");
  std::unique_ptr<Process> process_;
  Descriptor output_;
  ExitStatus end_;
  int ends_ = 0;
};

TEST(ExitStatusTest, SaysHowAProcessEnded) {
  EXPECT_EQ(ExitStatus{.code = 1}.ToString(), "exit code 1");
  EXPECT_EQ(ExitStatus{.signal = 9}.ToString(), "signal 9 (Killed)");
  EXPECT_EQ(ExitStatus{.code = 137}.ToString(), "exit code 137 (128 + signal 9, Killed)");
  EXPECT_EQ(ExitStatus{.code = 255}.ToString(), "exit code 255");
  EXPECT_EQ(ExitStatus{.code = 3}.ShellCode(), 3);
  EXPECT_EQ(ExitStatus{.signal = 15}.ShellCode(), 143);
}

TEST_F(ProcessTest, TellsTheExitCode) {
  ASSERT_EQ(StartShell("exit 7"), absl::OkStatus());
  EXPECT_EQ(AwaitEnd(), ExitStatus{.code = 7});
}

TEST_F(ProcessTest, TellsTheSignal) {
  ASSERT_EQ(StartShell("kill -9 $$"), absl::OkStatus());
  EXPECT_EQ(AwaitEnd(), ExitStatus{.signal = SIGKILL});
}

// Whoever acts upon the end has acted later, however long the one who was told of it had to wait.
TEST_F(ProcessTest, TheTimeOfTheEndIsBeforeAnybodySeesIt) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(StartShell("read line"), absl::OkStatus());
    std::atomic<Nanoseconds> seen_at = 0;
    std::thread seer([&, pid = process_->pid()] {
      while (IsRunning(pid)) {
      }
      seen_at = environment_->Now();
    });
    On([this] { process_->Signal(SIGKILL); });
    AwaitEnd();
    seer.join();
    EXPECT_LE(process_->ended_at(), seen_at);
    On([this] { process_.reset(); });
    ends_ = 0;
    has_ended_ = environment_->MakeEvent();
  }
}

TEST_F(ProcessTest, NamesAProgramThatCannotBeStarted) {
  const absl::Status missing = Start({.command = {"./no-such-program"}});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot start './no-such-program': No such file or directory");
  const absl::Status unknown = Start({.command = {"no-such-program"}});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.message(),
            "cannot start 'no-such-program': No such file or directory; no folder of PATH has it");
  const absl::Status folder = Start({.command = {"/"}});
  EXPECT_EQ(folder.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(ends_, 0);
}

TEST_F(ProcessTest, ChangesTheEnvironment) {
  ASSERT_EQ(setenv("BRAID_ENV_KEPT", "kept", 1), 0);
  ASSERT_EQ(setenv("BRAID_ENV_CHANGED", "old", 1), 0);
  ASSERT_EQ(setenv("BRAID_ENV_REMOVED", "old", 1), 0);
  EXPECT_EQ(OutputOf("env | grep ^BRAID_ENV | sort",
                     {.environment = {{"BRAID_ENV_CHANGED", "a b=c\nd"},
                                      {"BRAID_ENV_NEW", ""},
                                      {"BRAID_ENV_REMOVED", std::nullopt}}}),
            "BRAID_ENV_CHANGED=a b=c\nBRAID_ENV_KEPT=kept\nBRAID_ENV_NEW=\n");
}

TEST_F(ProcessTest, HasTheDescriptorsThatWereGiven) {
  Pipe input = *MakePipe();
  ASSERT_EQ(write(input.write_end.number(), "line\n", 5), 5);
  const Pipe inherited = *MakePipe();
  const Pipe hidden = *MakePipe();
  const std::string number = std::to_string(inherited.write_end.number());
  const std::string script = "read line; echo \"$line\"; echo err >&2; ls /proc/$$/fd | grep -cx " +
                             std::to_string(hidden.write_end.number()) + "; echo inherited >&" +
                             number;
  // Both to the pipe: 2 stands in for 1 and moves out of the way of itself.
  const Descriptor saved(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  Pipe output = *MakePipe();
  ASSERT_EQ(dup2(output.write_end.number(), STDERR_FILENO), STDERR_FILENO);
  const absl::Status status = Start({.command = {"bash", "-c", script},
                                     .standard_input = input.read_end.number(),
                                     .standard_output = STDERR_FILENO,
                                     .standard_error = output.write_end.number(),
                                     .inherited = {inherited.write_end.number()}});
  ASSERT_EQ(dup2(saved.number(), STDERR_FILENO), STDERR_FILENO);
  output.write_end.Close();
  ASSERT_EQ(status, absl::OkStatus());
  EXPECT_EQ(ReadAll(output.read_end), "line\nerr\n0\n");
  AwaitEnd();
  EXPECT_EQ(ReadLine(inherited.read_end), "inherited\n");
}

TEST_F(ProcessTest, HasDefaultSignalsWhateverTheParentHas) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  On([&] { pthread_sigmask(SIG_BLOCK, &blocked, &before); });
  const auto handler = signal(SIGHUP, SIG_IGN);
  const std::string text = OutputOf("grep -E '^Sig(Blk|Ign)' /proc/self/status");
  signal(SIGHUP, handler);
  On([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  EXPECT_EQ(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(ProcessTest, ASignalReachesTheChildAlone) {
  ASSERT_EQ(
      StartTalking("trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.05; done"),
      absl::OkStatus());
  ASSERT_EQ(ReadLine(output_), "ready\n");
  On([&] { process_->Signal(SIGTERM); });
  EXPECT_EQ(AwaitEnd(), ExitStatus{.code = 5});
  EXPECT_EQ(ReadAll(output_), "got it\n");
  On([&] { process_->Signal(SIGTERM); });  // of no effect
}

TEST_F(ProcessTest, ASignalReachesTheWholeGroup) {
  ASSERT_EQ(StartTalking("trap 'wait; echo leader; exit 3' TERM; "
                         "sh -c 'trap \"echo child; exit\" TERM; echo ready; "
                         "while :; do sleep 0.05; done' & wait",
                         {.own_group = true}),
            absl::OkStatus());
  ASSERT_EQ(ReadLine(output_), "ready\n");
  EXPECT_EQ(getpgid(process_->pid()), process_->pid());
  On([&] { process_->Signal(SIGTERM); });
  EXPECT_EQ(AwaitEnd(), ExitStatus{.code = 3});
  EXPECT_EQ(ReadAll(output_), "child\nleader\n");
}

TEST_F(ProcessTest, NothingOfAGroupOutlivesItsLeader) {
  // The pipe's end: nobody has the other one any more.
  EXPECT_EQ(OutputOf("sleep 1000 & sleep 1000 & echo started", {.own_group = true}), "started\n");
}

TEST_F(ProcessTest, IsKilledWhenItIsDestroyed) {
  ASSERT_EQ(StartTalking("sleep 1000 & echo started; sleep 1000", {.own_group = true}),
            absl::OkStatus());
  const pid_t pid = process_->pid();
  On([&] { process_.reset(); });
  EXPECT_FALSE(IsRunning(pid));
  ReadAll(output_);
  EXPECT_EQ(ends_, 0);
}

// Starts a process that says "started" and stays, and stays itself.
[[noreturn]] void StartAndStay(int output) {
  const auto environment = MakeRealEnvironment();
  const auto never = environment->MakeEvent();
  const auto reactor = environment->StartReactor("starter");
  std::unique_ptr<Process> process;
  reactor->Post([&] {
    auto started = Process::Start(
        reactor.get(),
        {.command = {"sh", "-c", "echo started; exec sleep 1000"}, .standard_output = output},
        [](ExitStatus) {});
    if (started.ok()) process = *std::move(started);
  });
  environment->Await(*never, kProcessPatience).IgnoreError();
  _exit(1);
}

TEST(ProcessWithoutParentTest, DiesAtOnce) {
  Pipe pipe = *MakePipe();
  const pid_t starter = fork();
  ASSERT_GE(starter, 0);
  if (starter == 0) StartAndStay(pipe.write_end.number());
  pipe.write_end.Close();
  ASSERT_EQ(ReadLine(pipe.read_end), "started\n");
  ASSERT_EQ(kill(starter, SIGKILL), 0);
  ASSERT_EQ(waitpid(starter, nullptr, 0), starter);
  EXPECT_EQ(ReadAll(pipe.read_end), "");  // nobody has the other end any more
}

}  // namespace
}  // namespace braid
