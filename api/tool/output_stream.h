// The output of many processes on its way to one terminal, without ever blocking the reactor to
// whose thread it belongs.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/reactor.h"

namespace braid {

// Writes as fast as a descriptor takes it. Others may share the descriptor (a terminal), so it is
// left blocking and only written to when it has room.
class OutputStream {
 public:
  struct Handlers {
    std::function<void()> on_drained;  // what had to wait is written
    std::function<void()> on_broken;   // nobody reads any more: what is written is dropped
  };
  // The descriptor is not owned.
  OutputStream(Reactor* reactor, int descriptor, Handlers handlers);
  ~OutputStream();
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;

  void Write(std::string_view bytes);
  bool is_drained() const { return written_ == pending_.size(); }
  // Who can wait now should: over 1 MiB is pending.
  bool is_full() const;

 private:
  void WriteSome(size_t limit);
  void OnWritable();

  Reactor* const reactor_;
  const int descriptor_;
  const Handlers handlers_;
  std::string pending_;
  size_t written_ = 0;  // of pending_
  bool is_watched_ = false;
  bool is_broken_ = false;
};

// Hands on what comes out of a pipe.
class PipeReader {
 public:
  PipeReader(Reactor* reactor, Descriptor pipe, std::function<void(std::string_view)> fn);
  ~PipeReader();
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  absl::Status Resume();  // also to begin
  void Pause();
  // Hands on what is in the pipe now and closes it.
  void Finish();

 private:
  void ReadSome();

  Reactor* const reactor_;
  Descriptor pipe_;
  const std::function<void(std::string_view)> fn_;
  bool is_watched_ = false;
};

}  // namespace braid
