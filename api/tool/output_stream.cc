#include "api/tool/output_stream.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace braid {
namespace {

constexpr size_t kMaxPending = size_t{1} << 20;
constexpr size_t kMaxRead = size_t{64} << 10;
// What a pipe or terminal that is writable takes without blocking (PIPE_BUF).
constexpr size_t kPortion = 4096;

}  // namespace

OutputStream::OutputStream(Reactor* reactor, int descriptor, Handlers handlers)
    : reactor_(reactor), descriptor_(descriptor), handlers_(std::move(handlers)) {}

OutputStream::~OutputStream() {
  if (is_watched_) reactor_->Unwatch(descriptor_);
}

bool OutputStream::is_full() const { return pending_.size() - written_ > kMaxPending; }

void OutputStream::Write(std::string_view bytes) {
  if (is_broken_ || bytes.empty()) return;
  pending_ += bytes;
  if (is_watched_) return;
  is_watched_ =
      reactor_->Watch(descriptor_, {.writable = true}, [this](Reactor::Readiness) { OnWritable(); })
          .ok();
  if (is_watched_) return;
  // A regular file, which always has room, cannot be watched.
  while (!is_drained()) WriteSome(pending_.size());
}

void OutputStream::WriteSome(size_t limit) {
  const ssize_t bytes =
      write(descriptor_, pending_.data() + written_, std::min(limit, pending_.size() - written_));
  if (bytes >= 0) {
    written_ += bytes;
  } else if (errno != EAGAIN && errno != EINTR) {
    is_broken_ = true;
    written_ = pending_.size();
  }
  if (is_drained() || written_ >= kMaxPending) {
    pending_.erase(0, written_);
    written_ = 0;
  }
  if (is_broken_ && handlers_.on_broken) handlers_.on_broken();
}

void OutputStream::OnWritable() {
  WriteSome(kPortion);
  if (!is_drained()) return;
  reactor_->Unwatch(descriptor_);
  is_watched_ = false;
  if (handlers_.on_drained) handlers_.on_drained();
}

PipeReader::PipeReader(Reactor* reactor, Descriptor pipe, std::function<void(std::string_view)> fn)
    : reactor_(reactor), pipe_(std::move(pipe)), fn_(std::move(fn)) {}

PipeReader::~PipeReader() { Pause(); }

absl::Status PipeReader::Resume() {
  if (is_watched_ || !pipe_.is_open()) return absl::OkStatus();
  const absl::Status status = reactor_->Watch(pipe_.number(), {.readable = true},
                                              [this](Reactor::Readiness) { ReadSome(); });
  is_watched_ = status.ok();
  return status;
}

void PipeReader::Pause() {
  if (is_watched_) reactor_->Unwatch(pipe_.number());
  is_watched_ = false;
}

void PipeReader::ReadSome() {
  std::array<char, kMaxRead> buffer;
  const ssize_t bytes = read(pipe_.number(), buffer.data(), buffer.size());
  if (bytes < 0 && errno == EINTR) return;
  if (bytes > 0) {
    fn_({buffer.data(), static_cast<size_t>(bytes)});
    return;
  }
  Pause();
  pipe_.Close();
}

void PipeReader::Finish() {
  if (!pipe_.is_open()) return;
  Pause();
  // No more than is there now: somebody who keeps the other end open may write for ever.
  int available = 0;
  ioctl(pipe_.number(), FIONREAD, &available);
  std::string rest(available, '\0');
  size_t size = 0;
  while (size < rest.size()) {
    const ssize_t bytes = read(pipe_.number(), rest.data() + size, rest.size() - size);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    size += bytes;
  }
  pipe_.Close();
  if (size > 0) fn_(std::string_view(rest).substr(0, size));
}

}  // namespace braid
