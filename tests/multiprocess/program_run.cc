#include "tests/multiprocess/program_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Zombies do not run, they wait for a parent that may never ask.
bool IsRunning(const fs::path& folder) {
  const std::string stat = ReadText(folder / "stat");
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

std::string MakeMark(const void* run) {
  static int runs = 0;
  return absl::StrFormat("BRAID_TEST_RUN=%d.%d.%p", getpid(), runs++, run);
}

}  // namespace

int FreePort() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

ProgramRun::ProgramRun(std::vector<std::string> command, Options options) : mark_(MakeMark(this)) {
  ProcessOptions process{.command = std::move(command),
                         .environment = std::move(options.environment),
                         .own_group = true};
  const size_t equals = mark_.find('=');
  process.environment[mark_.substr(0, equals)] = mark_.substr(equals + 1);
  process.environment.emplace("TMPDIR", temporary_.path());  // last events of runs that fail
  Descriptor out, err;
  if (options.terminal.has_value()) {
    process.standard_input = process.standard_output = process.standard_error = options.terminal;
    out_.is_closed = err_.is_closed = true;
  } else {
    for (auto [output, descriptor] : {std::pair(&out_, &out), std::pair(&err_, &err)}) {
      Pipe pipe = *MakePipe();
      output->pipe = std::move(pipe.read_end);
      *descriptor = std::move(pipe.write_end);
    }
    process.standard_output = out.number();
    process.standard_error = err.number();
  }
  OnReactor([&] {
    auto started = Process::Start(reactor_.get(), process, [this](ExitStatus status) {
      const std::lock_guard<std::mutex> lock(mutex_);
      end_ = status;
      changed_.notify_all();
    });
    if (!started.ok()) {  // nothing is waited for
      ADD_FAILURE() << started.status();
      end_ = {.code = -1};
      out_.is_closed = err_.is_closed = true;
      return;
    }
    process_ = *std::move(started);
    pid_ = process_->pid();
    if (!options.reads_output) out_.is_closed = err_.is_closed = true;
    for (Output* output : {&out_, &err_}) {
      if (output->is_closed) continue;
      ASSERT_EQ(reactor_->Watch(output->pipe.number(), {.readable = true},
                                [this, output](Reactor::Readiness) { Read(*output); }),
                absl::OkStatus());
    }
  });
}

ProgramRun::~ProgramRun() {
  Signal(SIGKILL);
  AwaitProcesses(0);
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
  OnReactor([this] {
    process_.reset();
    Close(out_);
    Close(err_);
  });
}

void ProgramRun::OnReactor(const std::function<void()>& fn) {
  const std::unique_ptr<Event> done = environment_->MakeEvent();
  reactor_->Post([&] {
    fn();
    done->Set();
  });
  if (!environment_->Await(*done, kRunTimeout).ok()) std::abort();  // `fn` is about to go
}

void ProgramRun::Signal(int signal) {
  OnReactor([&] {
    if (process_ != nullptr) process_->Signal(signal);
  });
}

void ProgramRun::CloseOutput() {
  OnReactor([this] { Close(out_); });
}

void ProgramRun::Read(Output& output) {
  char buffer[16384];
  const ssize_t bytes = read(output.pipe.number(), buffer, sizeof(buffer));
  if (bytes <= 0) {
    Close(output);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  output.text.append(buffer, bytes);
  changed_.notify_all();
}

void ProgramRun::Close(Output& output) {
  if (output.pipe.is_open()) reactor_->Unwatch(output.pipe.number());
  const std::lock_guard<std::mutex> lock(mutex_);
  output.pipe.Close();
  output.is_closed = true;
  changed_.notify_all();
}

bool ProgramRun::AwaitThat(const std::function<bool()>& is_so) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(kRunTimeout), is_so);
}

void ProgramRun::AwaitOutput(std::string_view text) {
  if (AwaitThat([&] { return out_.text.find(text) != std::string::npos; })) return;
  ADD_FAILURE() << "'" << text << "' was not printed; this was:\n" << out() << "\nand:\n" << err();
}

void ProgramRun::AwaitError(std::string_view text) {
  if (AwaitThat([&] { return err_.text.find(text) != std::string::npos; })) return;
  ADD_FAILURE() << "'" << text << "' was not printed; this was:\n" << err() << "\nand:\n" << out();
}

ExitStatus ProgramRun::Wait() {
  if (!AwaitThat([&] { return end_.has_value(); })) {
    ADD_FAILURE() << "it did not end; it printed:\n" << out() << "\nand:\n" << err();
    return {.code = -1};
  }
  if (!AwaitThat([&] { return out_.is_closed && err_.is_closed; })) {
    ADD_FAILURE() << "it ended, but another process may still print";
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return *end_;
}

std::string ProgramRun::out() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return out_.text;
}

std::string ProgramRun::err() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return err_.text;
}

std::string ProgramRun::LastErrorLine() const {
  std::string text = err();
  if (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // from the beginning if there is none
}

std::vector<pid_t> ProgramRun::Processes() const {
  std::vector<pid_t> found;
  std::error_code error;  // processes end while the list is read
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string environment = '\0' + ReadText(entry.path() / "environ");
    if (environment.find('\0' + mark_ + '\0') == std::string::npos) continue;
    if (IsRunning(entry.path())) found.push_back(pid);
  }
  return found;
}

void ProgramRun::AwaitProcesses(size_t count) const {
  std::vector<pid_t> found;
  const bool is_so = LookUntil([&] { return (found = Processes()).size() == count; });
  EXPECT_TRUE(is_so) << count << " processes were expected, not " << absl::StrJoin(found, ", ");
}

void ProgramRun::AwaitFile(const std::string& path) const {
  EXPECT_TRUE(LookUntil([&] { return fs::exists(path); })) << path << " was not made; printed:\n"
                                                           << out() << "\nand:\n"
                                                           << err();
}

bool ProgramRun::LookUntil(const std::function<bool()>& is_so) const {
  const Nanoseconds deadline = environment_->Now() + kRunTimeout;
  bool is = false;
  while (!(is = is_so()) && environment_->Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is;
}

}  // namespace braid
