// Memory that the ranks of a group open to each other: a rank puts bytes into another's, with a
// signal that they are there, and gets bytes from there, while the other's program does what it
// likes.
//
//   std::vector<float> inbox(1000);
//   BRAID_ASSIGN_OR_RETURN(const auto window, world->MakeWindow(inbox));
//   if (world->rank() == 0) BRAID_RETURN_IF_ERROR(window->PutSignal(values, 1, 0, /*signal=*/5));
//   if (world->rank() == 1) BRAID_RETURN_IF_ERROR(window->WaitSignal(5, /*at_least=*/1).status());
//   BRAID_RETURN_IF_ERROR(window->Close());
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "graph/source_location.h"

namespace braid::dist {

// Made by Group::MakeWindow. Offsets and counts are in elements. Each rank has signals 0 to 1023,
// counters that are 0 at first and never fall.
//
// Order: what one rank puts to another in one window arrives there in the order in which the calls
// were made, and so do the signals. So who has seen a signal also finds the bytes of its put, and
// of all puts to this rank that its sender began before. A get reads what was put there by earlier
// calls of the same rank. Nothing orders puts of different ranks, a get and a later put, or a
// program that touches its own memory while others write or read there: signals and Fence keep
// these apart.
//
// Belongs to the thread that its group belongs to. It may outlive the group, not its own memory.
//
// Errors: of this call alone, which is then not made: INVALID_ARGUMENT for another element type, a
// rank that is not in the group or a signal that there is not; OUT_OF_RANGE for elements that are
// not all in the other rank's memory; FAILED_PRECONDITION after Close; RESOURCE_EXHAUSTED for more
// than 65,536 puts and gets under way at one rank. What only shows beside other ranks ends the
// world as in all calls of a Group: a fence or close that does not fit, what does not come in time,
// a put or a get at a rank that has destroyed its window without Close.
class Window {
 public:
  // Unless it is closed: other ranks reach this memory no more, and if they try, the world ends.
  // Waits for their processes, not for their programs.
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // How many elements a rank has given.
  int64_t size(int rank) const;

  // Returns when the bytes are in the memory of `rank`, from element `offset` on. Start... returns
  // at once; its data stay until the Work is done.
  absl::Status Put(ConstBuffer data, int rank, int64_t offset, SourceLocation where = Here());
  Work StartPut(ConstBuffer data, int rank, int64_t offset, SourceLocation where = Here());

  // The same, and then raises a signal there by 1. Without data it is a signal alone.
  absl::Status PutSignal(ConstBuffer data, int rank, int64_t offset, int signal,
                         SourceLocation where = Here());
  Work StartPutSignal(ConstBuffer data, int rank, int64_t offset, int signal,
                      SourceLocation where = Here());

  // Waits until this rank's signal was raised so often, by whichever ranks, and returns how often
  // it was; with 0 at once. The world ends with DEADLINE_EXCEEDED if it does not come in time,
  // which names the ranks that have not raised it; and with FAILED_PRECONDITION at once if no rank
  // is left that could, because all have ended their part or wait. `timeout`: zero is the window's.
  absl::StatusOr<int64_t> WaitSignal(int signal, int64_t at_least,
                                     absl::Duration timeout = absl::ZeroDuration(),
                                     SourceLocation where = Here());

  // Fills `data` from the memory of `rank`.
  absl::Status Get(Buffer data, int rank, int64_t offset, SourceLocation where = Here());
  Work StartGet(Buffer data, int rank, int64_t offset, SourceLocation where = Here());

  // All ranks call it. When it returns, all puts and gets that any of them began before are done;
  // those that another rank begins after it may already come.
  absl::Status Fence(absl::Duration timeout = absl::ZeroDuration(), SourceLocation where = Here());

  // All ranks call it. A fence, after which nothing of others comes into this memory or is read
  // there. Then it returns OK at once.
  absl::Status Close(absl::Duration timeout = absl::ZeroDuration(), SourceLocation where = Here());

 private:
  friend class Group;
  class Impl;
  explicit Window(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace braid::dist
