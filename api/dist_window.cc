#include "api/dist_window.h"

#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/dist_calls.h"
#include "runtime/base/status.h"
#include "runtime/group/group_call.h"
#include "runtime/group/window_end.h"

namespace braid::dist {
namespace {

// What the call that makes a window reads and writes.
struct GatheredSizes {
  int64_t own = 0;
  std::vector<int64_t> by_rank;
};

}  // namespace

class Window::Impl {
 public:
  Impl(std::shared_ptr<Group::Impl> group, int ranks, const Buffer& memory,
       const CallOptions& options)
      : group_(std::move(group)),
        ranks_(ranks),
        type_(memory.type),
        element_size_(memory.element_size),
        timeout_(options.timeout),
        handle_(std::make_shared<WindowHandle>()),
        sizes_(std::make_shared<GatheredSizes>()) {
    handle_->name = options.name;
    handle_->memory = static_cast<std::byte*>(memory.data);
    handle_->bytes = memory.count * memory.element_size;
    sizes_->own = memory.count;
    sizes_->by_rank.resize(static_cast<size_t>(ranks));
  }

  ~Impl() {
    if (!is_closed_) Run(Calls(CallOf(CallKind::kDropWindow, {})), timeout_).IgnoreError();
  }

  absl::Status Make(SourceLocation where) {
    GroupCall call = CallOf(CallKind::kMakeWindow, where);
    call.counts = {sizes_->own};
    call.input = &sizes_->own;
    call.output = sizes_->by_rank.data();
    call.keeps = sizes_;
    BRAID_RETURN_IF_ERROR(
        Group::RunCalls(*group_, Calls(call), {.name = handle_->name, .timeout = timeout_}));
    // So that offsets in bytes do not overflow, whatever a rank says.
    const int64_t most = std::numeric_limits<int64_t>::max() / element_size_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (const int64_t given = size(rank); given < 0 || given > most) {
        return absl::InternalError(
            absl::StrFormat("make_window (%s): rank %d says that it gives %d elements of %d bytes",
                            where.ToString(), rank, given, element_size_));
      }
    }
    return absl::OkStatus();
  }

  int64_t size(int rank) const {
    return rank < 0 || rank >= ranks_ ? 0 : sizes_->by_rank[static_cast<size_t>(rank)];
  }

  // Of a ConstBuffer or a Buffer.
  template <typename B>
  GroupCalls Access(CallKind kind, const B& data, int rank, int64_t offset,
                    SourceLocation where) const {
    GroupCall call = CallOf(kind, where);
    BRAID_RETURN_IF_ERROR(CheckOpen(call));
    call.peer = rank;
    BRAID_RETURN_IF_ERROR(CheckCall(call, ranks_));
    if (data.type != type_ || data.element_size != element_size_) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s (%s): the data are of %s (%d bytes each) and the window%s of %s (%d); both must be "
          "the same",
          NameOf(kind), where.ToString(), NameOf(data.type), data.element_size, name(),
          NameOf(type_), element_size_));
    }
    if (offset < 0 || offset > size(rank) || data.count > size(rank) - offset) {
      return absl::OutOfRangeError(absl::StrFormat(
          "%s (%s): %d elements at %d are not all in the memory of rank %d in the window%s, which "
          "has %d elements",
          NameOf(kind), where.ToString(), data.count, offset, rank, name(), size(rank)));
    }
    call.counts = {data.count};
    call.offset = offset;
    if constexpr (std::is_same_v<B, Buffer>) {
      call.output = data.data;
    } else {
      call.input = data.data;
    }
    return Calls(std::move(call));
  }

  GroupCalls PutSignal(const ConstBuffer& data, int rank, int64_t offset, int signal,
                       SourceLocation where) const {
    BRAID_ASSIGN_OR_RETURN(std::vector<GroupCall> calls,
                           Access(CallKind::kPut, data, rank, offset, where));
    BRAID_RETURN_IF_ERROR(CheckSignal(calls[0], signal));
    calls[0].signal = signal;
    return calls;
  }

  absl::StatusOr<int64_t> WaitSignal(int signal, int64_t at_least, absl::Duration timeout,
                                     SourceLocation where) const {
    GroupCall call = CallOf(CallKind::kWaitSignal, where);
    BRAID_RETURN_IF_ERROR(CheckOpen(call));
    BRAID_RETURN_IF_ERROR(CheckSignal(call, signal));
    int64_t raised = 0;
    call.signal = signal;
    call.at_least = at_least;
    call.output = &raised;
    BRAID_RETURN_IF_ERROR(Run(Calls(std::move(call)), timeout));
    return raised;
  }

  absl::Status Fence(absl::Duration timeout, SourceLocation where) const {
    GroupCall call = CallOf(CallKind::kFence, where);
    BRAID_RETURN_IF_ERROR(CheckOpen(call));
    return Run(WithBytes(std::move(call)), timeout);
  }

  absl::Status Close(absl::Duration timeout, SourceLocation where) {
    if (is_closed_) return absl::OkStatus();
    BRAID_RETURN_IF_ERROR(Run(WithBytes(CallOf(CallKind::kCloseWindow, where)), timeout));
    is_closed_ = true;
    return absl::OkStatus();
  }

  absl::Status Run(GroupCalls calls, absl::Duration timeout) const {
    return Group::RunCalls(*group_, std::move(calls), OptionsOf(timeout));
  }
  Work Start(GroupCalls calls) const {
    return Group::StartCalls(*group_, std::move(calls), OptionsOf(timeout_));
  }

 private:
  std::string name() const {
    return handle_->name.empty() ? "" : absl::StrFormat(" '%s'", handle_->name);
  }

  CallOptions OptionsOf(absl::Duration timeout) const {
    return {.timeout = timeout > absl::ZeroDuration() ? timeout : timeout_};
  }

  GroupCall CallOf(CallKind kind, SourceLocation where) const {
    GroupCall call;
    call.kind = kind;
    call.type = type_;
    call.element_size = element_size_;
    call.where = where;
    call.window = handle_;
    return call;
  }

  static std::vector<GroupCall> Calls(GroupCall call) { return {std::move(call)}; }

  // A fence's or a close's: a byte of each rank.
  std::vector<GroupCall> WithBytes(GroupCall call) const {
    const auto bytes = std::make_shared<std::vector<std::byte>>(ranks_ + 1);
    call.input = bytes->data() + ranks_;
    call.output = bytes->data();
    call.keeps = bytes;
    return Calls(std::move(call));
  }

  absl::Status CheckOpen(const GroupCall& call) const {
    if (!is_closed_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s (%s): the window%s is closed", NameOf(call.kind), call.where.ToString(), name()));
  }

  static absl::Status CheckSignal(const GroupCall& call, int signal) {
    if (signal >= 0 && signal < kWindowSignals) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s (%s): the signal is %d; there are 0 to %d", NameOf(call.kind),
                        call.where.ToString(), signal, kWindowSignals - 1));
  }

  const std::shared_ptr<Group::Impl> group_;  // which the window may outlive
  const int ranks_;
  const ElementType type_;
  const int64_t element_size_;
  const absl::Duration timeout_;
  const std::shared_ptr<WindowHandle> handle_;
  const std::shared_ptr<GatheredSizes> sizes_;
  bool is_closed_ = false;
};

absl::StatusOr<std::unique_ptr<Window>> Group::MakeWindow(Buffer memory, const CallOptions& options,
                                                          SourceLocation where) {
  auto impl = std::make_unique<Window::Impl>(impl_, size(), memory, options);
  BRAID_RETURN_IF_ERROR(impl->Make(where));
  return std::unique_ptr<Window>(new Window(std::move(impl)));
}

Window::Window(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Window::~Window() = default;

int64_t Window::size(int rank) const { return impl_->size(rank); }

absl::Status Window::Put(ConstBuffer data, int rank, int64_t offset, SourceLocation where) {
  return impl_->Run(impl_->Access(CallKind::kPut, data, rank, offset, where), {});
}
Work Window::StartPut(ConstBuffer data, int rank, int64_t offset, SourceLocation where) {
  return impl_->Start(impl_->Access(CallKind::kPut, data, rank, offset, where));
}

absl::Status Window::PutSignal(ConstBuffer data, int rank, int64_t offset, int signal,
                               SourceLocation where) {
  return impl_->Run(impl_->PutSignal(data, rank, offset, signal, where), {});
}
Work Window::StartPutSignal(ConstBuffer data, int rank, int64_t offset, int signal,
                            SourceLocation where) {
  return impl_->Start(impl_->PutSignal(data, rank, offset, signal, where));
}

absl::StatusOr<int64_t> Window::WaitSignal(int signal, int64_t at_least, absl::Duration timeout,
                                           SourceLocation where) {
  return impl_->WaitSignal(signal, at_least, timeout, where);
}

absl::Status Window::Get(Buffer data, int rank, int64_t offset, SourceLocation where) {
  return impl_->Run(impl_->Access(CallKind::kGet, data, rank, offset, where), {});
}
Work Window::StartGet(Buffer data, int rank, int64_t offset, SourceLocation where) {
  return impl_->Start(impl_->Access(CallKind::kGet, data, rank, offset, where));
}

absl::Status Window::Fence(absl::Duration timeout, SourceLocation where) {
  return impl_->Fence(timeout, where);
}

absl::Status Window::Close(absl::Duration timeout, SourceLocation where) {
  return impl_->Close(timeout, where);
}

}  // namespace braid::dist
