#include "api/tool/node_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/tool/remote_orders.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What ssh gets to bring SIGKILL to the other machine before it is killed itself, which has the
// same effect there, some time later.
constexpr Nanoseconds kSshGrace = kSecond;

constexpr int kSshFailed = 255;

absl::StatusOr<Descriptor> OpenNull() {
  Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open()) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  return null;
}

std::string Parenthesize(const std::string& text) { return text.empty() ? "" : " (" + text + ")"; }

}  // namespace

// A pipe of its output, and what becomes of what comes out.
struct NodeProcess::Channel {
  OutputStream* stream = nullptr;
  std::optional<LineTagger> tagger = std::nullopt;  // on the way to the stream
  bool is_kept = false;
  std::unique_ptr<PipeReader> reader = nullptr;

  void Take(std::string_view bytes, OutputTail& tail) {
    if (is_kept) tail.Append(bytes);
    if (stream == nullptr) return;
    if (tagger.has_value()) {
      stream->Write(tagger->Tag(bytes));
    } else {
      stream->Write(bytes);
    }
    if (stream->is_full()) reader->Pause();
  }
};

absl::StatusOr<std::unique_ptr<NodeProcess>> NodeProcess::Start(
    Starter starter, NodeCommand command, Output output, std::function<void(ExitStatus)> on_end) {
  std::unique_ptr<NodeProcess> node(new NodeProcess(starter, std::move(command), output));
  BRAID_RETURN_IF_ERROR(node->StartProcess(std::move(on_end)));
  return node;
}

NodeProcess::NodeProcess(Starter starter, NodeCommand command, Output output)
    : reactor_(starter.reactor),
      guard_(starter.guard),
      command_(std::move(command)),
      output_(output) {}

NodeProcess::~NodeProcess() {
  if (ssh_timer_.has_value()) reactor_->CancelTimer(*ssh_timer_);
}

absl::Status NodeProcess::StartProcess(std::function<void(ExitStatus)> on_end) {
  ProcessOptions options{.command = command_.command, .own_group = true, .guard = guard_};
  // Our copies are closed once the child has its own.
  ChildEnds ends;
  BRAID_RETURN_IF_ERROR(command_.is_remote ? PrepareRemote(options, ends)
                                           : PrepareLocal(options, ends));
  BRAID_RETURN_IF_ERROR(PrepareOutput(options, ends));
  BRAID_ASSIGN_OR_RETURN(
      process_,
      Process::Start(reactor_, options, [this, on_end = std::move(on_end)](ExitStatus status) {
        OnEnd(status, on_end);
      }));
  // Or connections to a master that has ended would still be taken.
  command_.control.Close();
  return absl::OkStatus();
}

absl::Status NodeProcess::PrepareLocal(ProcessOptions& options, ChildEnds& ends) {
  options.environment = EnvironmentChanges(command_.environment);
  if (command_.control.is_open()) options.inherited.push_back(command_.control.descriptor());
  // A process in the background that reads from a terminal would be stopped.
  const bool reads_ours = output_.kind == Output::Kind::kInherited && isatty(STDIN_FILENO) == 0;
  if (reads_ours) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(ends.input, OpenNull());
  options.standard_input = ends.input.number();
  return absl::OkStatus();
}

absl::Status NodeProcess::PrepareRemote(ProcessOptions& options, ChildEnds& ends) {
  options.environment = EnvironmentChanges({});
  BRAID_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  BRAID_RETURN_IF_ERROR(MakeNonBlocking(pipe.write_end));
  ends.input = std::move(pipe.read_end);
  options.standard_input = ends.input.number();
  orders_pipe_ = std::move(pipe.write_end);
  // That ssh is gone is noticed by its end.
  orders_ =
      std::make_unique<OutputStream>(reactor_, orders_pipe_.number(), OutputStream::Handlers{});
  orders_->Write(EnvironmentOrder(command_.environment));
  return absl::OkStatus();
}

absl::Status NodeProcess::PrepareOutput(ProcessOptions& options, ChildEnds& ends) {
  const LineTagger tagger(absl::StrFormat("[%s %d] ", command_.word, command_.rank));
  if (output_.kind == Output::Kind::kKept) {
    // One pipe keeps the order of both.
    BRAID_ASSIGN_OR_RETURN(ends.output, OpenChannel({.is_kept = true}));
    options.standard_output = ends.output.number();
    options.standard_error = ends.output.number();
  } else if (output_.kind == Output::Kind::kTagged) {
    BRAID_ASSIGN_OR_RETURN(ends.output, OpenChannel({.stream = output_.out, .tagger = tagger}));
    BRAID_ASSIGN_OR_RETURN(ends.error,
                           OpenChannel({.stream = output_.err, .tagger = tagger, .is_kept = true}));
    options.standard_output = ends.output.number();
    options.standard_error = ends.error.number();
  } else if (command_.is_remote) {
    // Where ssh says why it failed.
    BRAID_ASSIGN_OR_RETURN(ends.error, OpenChannel({.stream = output_.err, .is_kept = true}));
    options.standard_error = ends.error.number();
  }
  return absl::OkStatus();
}

// Returns the end for the child.
absl::StatusOr<Descriptor> NodeProcess::OpenChannel(Channel opened) {
  BRAID_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  channels_.push_back(std::make_unique<Channel>(std::move(opened)));
  Channel* channel = channels_.back().get();
  channel->reader = std::make_unique<PipeReader>(
      reactor_, std::move(pipe.read_end),
      [this, channel](std::string_view bytes) { channel->Take(bytes, tail_); });
  BRAID_RETURN_IF_ERROR(channel->reader->Resume());
  return std::move(pipe.write_end);
}

void NodeProcess::ResumeOutput() {
  for (const auto& channel : channels_) channel->reader->Resume().IgnoreError();
}

void NodeProcess::OnEnd(ExitStatus status, const std::function<void(ExitStatus)>& on_end) {
  for (const auto& channel : channels_) {
    channel->reader->Finish();
    if (channel->tagger.has_value()) channel->stream->Write(channel->tagger->Finish());
  }
  on_end(status);
}

void NodeProcess::Signal(int signal) {
  if (!command_.is_remote) {
    process_->Signal(signal);
    return;
  }
  if (has_ended()) return;
  orders_->Write(SignalOrder(signal));
  if (signal != SIGKILL || ssh_timer_.has_value()) return;
  ssh_timer_ = reactor_->RunAfter(kSshGrace, [this] { process_->Signal(SIGKILL); });
}

std::string NameNode(const NodeCommand& command) {
  return absl::StrFormat("%s %d%s", command.word, command.rank, Parenthesize(command.host));
}

std::string NodeProcess::Describe() const {
  if (command_.is_remote) return NameNode(command_);
  const std::string separator = command_.host.empty() ? "" : ", ";
  return absl::StrFormat("%s %d (pid %d%s%s)", command_.word, command_.rank, process_->pid(),
                         separator, command_.host);
}

std::string NodeProcess::DescribeFailure(const ExitStatus& status) const {
  std::string_view words = LastLineWith(tail_.text(), "error:");
  std::string failure = status.ToString();
  if (command_.is_remote) {
    // These may be ssh's own failures, which are said by its last words, if by anything.
    if (status.code == kSshFailed) failure += " of ssh or the program";
    if (status.signal != 0) failure += " of ssh";
    const bool has_words =
        status.code == kSshFailed || status.code == kNotFound || status.code == kNotExecutable;
    if (words.empty() && has_words) words = LastLineWith(tail_.text(), "");
  }
  return words.empty() ? failure : failure + ": " + std::string(words);
}

}  // namespace braid
