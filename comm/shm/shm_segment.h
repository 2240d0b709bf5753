// One direction of a shm link: memory that the sender made and both processes map, in which frames
// and payload pass through two rings. The sender copies payload in, the receiver copies it to where
// it belongs, unless that is in memory that both map (shm_landing.h). Nothing of it has a name: it
// ends with the processes that map it.
//
// What the other side may have written is read once and then checked; a value that cannot be is an
// INVALID_ARGUMENT that says it and what was expected.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/transport.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/shared_memory.h"

namespace braid {

// A frame, or a piece of a Write's payload; the last piece has the frame.
struct ShmEntry {
  enum class Kind : uint8_t {
    kFrame = 1,
    kPiece = 2,
    kLastPiece = 3,
    kWritten = 4,  // the frame of a Write whose payload is where it belongs already
  };

  Kind kind = Kind::kFrame;
  uint8_t frame_bytes = 0;  // of a piece that is not the last: 0
  // Of the Write, as it was called for; of kFrame 0; of kWritten only the bytes.
  uint64_t token = 0;
  uint64_t offset = 0;
  uint64_t payload_bytes = 0;
  // Which of its bytes these are.
  uint64_t piece_begin = 0;
  uint64_t piece_bytes = 0;
  std::byte frame[kMaxFrameBytes];
};

// So many entries, and bytes of payload, may be under way. The bytes are what a fast core copies in
// a tenth of a millisecond: more would only leave the caches.
constexpr size_t kShmEntries = 1024;
constexpr size_t kShmEntryBytes = 128;  // two cache lines
constexpr size_t kShmPayloadBytes = 1 << 20;
// Payload travels in pieces of at most that much, so that both sides copy at the same time.
constexpr size_t kShmPieceBytes = 64 << 10;

// What the peer may do with memory of who made the segment.
enum class ShmAccess : uint32_t {
  kWrite = 0,  // as Link::Write
  kRead = 1,   // Link::ReadLent
  kBoth = 2,   // Link::ReadLent and WriteLent
};

// A landing region of who made the segment, into which the receiver may copy by itself.
struct ShmKey {
  alignas(64) std::atomic<uint64_t> token{0};  // as of Link::Expose; 0: none. Set last.
  // Where it lies in the heap of who made the segment.
  std::atomic<uint64_t> offset{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<ShmAccess> access{ShmAccess::kWrite};
  // The receiver's: how many of its threads write or read there. Each says so before it looks at
  // the token once more.
  std::atomic<uint32_t> is_used{0};
};
// So many regions are written directly: token % kShmKeys says where its key is.
constexpr size_t kShmKeys = 1024;

// Where the rings and the keys lie in the memory.
class ShmSegment {
 public:
  // As of SharedMemory. Map: what a peer made.
  static absl::StatusOr<ShmSegment> Make();
  static absl::StatusOr<ShmSegment> Map(Descriptor descriptor);

  SharedMemory& memory() { return memory_; }
  // Who made it calls these before the rings are written so far, counting in bytes from their
  // start: what a link does not use takes no memory. Errors as of SharedMemory::Populate.
  absl::Status FillEntries(uint64_t end);
  absl::Status FillPayload(uint64_t end);

  // How the rings stand. Counts never wrap.
  struct Header {
    // The sender writes.
    alignas(64) std::atomic<uint64_t> published{0};  // entries
    // The receiver writes.
    alignas(64) std::atomic<uint64_t> taken{0};  // entries
    std::atomic<uint64_t> payload_taken{0};      // bytes
    // Set by who is going to wait, cleared by who wakes it.
    alignas(64) std::atomic<uint32_t> receiver_sleeps{1};
    std::atomic<uint32_t> sender_waits{0};
  };
  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  ShmKey& key(uint64_t token) const;
  std::byte* entry(uint64_t number) const;
  std::byte* payload(uint64_t position) const;

 private:
  explicit ShmSegment(SharedMemory memory) : memory_(std::move(memory)) {}

  // Of whole pieces.
  absl::Status FillRing(size_t begin, uint64_t end, uint64_t& filled);

  SharedMemory memory_;
  uint64_t filled_entries_ = 0, filled_payload_ = 0;  // bytes of the rings
};

// The sender's end. One thread at a time.
class ShmSender {
 public:
  explicit ShmSender(ShmSegment segment) : segment_(std::move(segment)) {}

  ShmSegment& segment() { return segment_; }

  // False: there is no room for an entry. `written`: the frame is a Write's, of so many bytes,
  // which are where they belong.
  absl::StatusOr<bool> PutFrame(std::span<const std::byte> frame,
                                std::optional<uint64_t> written = std::nullopt);
  // A Write of which the first `begin` bytes have been put: as many more as there is room for, with
  // the frame behind the last. Whether all is put; `begin` is what has been put by then.
  // `published` is called after each piece but the last: the receiver may begin to copy.
  struct Write {
    uint64_t token = 0;
    uint64_t offset = 0;
    std::span<const std::byte> payload;
    std::span<const std::byte> frame;
  };
  absl::StatusOr<bool> PutWrite(const Write& write, uint64_t& begin,
                                absl::FunctionRef<void()> published);
  // After something was put: whether the receiver sleeps and is to be woken now.
  bool MustWake();
  // After something found no room: false if there is some by now; else the receiver will wake.
  absl::StatusOr<bool> WaitsForRoom();

 private:
  struct Room {
    uint64_t entries = 0;
    uint64_t bytes = 0;
  };
  absl::StatusOr<Room> FindRoom();
  void Publish(const ShmEntry& entry);

  ShmSegment segment_;
  uint64_t published_ = 0;  // entries, and bytes
  uint64_t payload_put_ = 0;
  Room taken_;  // as last seen
};

// The receiver's end. One thread.
class ShmReceiver {
 public:
  explicit ShmReceiver(ShmSegment segment) : segment_(std::move(segment)) {}

  const ShmSegment& segment() const { return segment_; }

  // Whether Next would give one, or an error.
  bool HasNext() const;
  // The next entry, checked in itself, or false.
  absl::StatusOr<bool> Next(ShmEntry& entry);
  // Its piece, until Take.
  std::span<const std::byte> Payload(const ShmEntry& entry) const;
  // It is done with. True: the sender waits for room and is to be woken.
  bool Take(const ShmEntry& entry);
  // True: nothing has come, and the sender will wake.
  bool Sleeps();

 private:
  ShmSegment segment_;
  uint64_t taken_ = 0;  // entries, and bytes
  uint64_t payload_taken_ = 0;
};

}  // namespace braid
