#include "comm/shm/shm_segment.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/streaming_copy.h"

// Of the thread sanitizer's run time, where that is linked in.
extern "C" {
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
}

namespace braid {
namespace {

// Where both ends of a link are in one process they meet at two addresses of the same memory. The
// sanitizer, which knows memory by its address, is told that what was done before a store at one is
// seen after the load at the other; of all links at once, as it takes sockets.
constexpr char kBothEnds = 0;
void BeforeStore() {
  if (__tsan_release != nullptr) __tsan_release(const_cast<char*>(&kBothEnds));
}
void AfterLoad() {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<char*>(&kBothEnds));
}

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// Where the fields of an entry lie.
enum EntryField : size_t {
  kKind = 0,
  kFrameBytes = 1,
  kToken = 8,
  kOffset = 16,
  kPayloadBytes = 24,
  kPieceBegin = 32,
  kPieceBytes = 40,
  kFrame = 48,
};
static_assert(kFrame + kMaxFrameBytes <= kShmEntryBytes);

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

constexpr size_t kPage = 4096;
constexpr size_t kLargestPage = 64 << 10;  // of machines that have others
constexpr size_t kKeysAt = kPage;          // behind the header
constexpr size_t kKeysEnd = kKeysAt + kShmKeys * sizeof(ShmKey);
constexpr size_t kEntriesAt = RoundUp(kKeysEnd, kLargestPage);
constexpr size_t kPayloadAt = kEntriesAt + kShmEntries * kShmEntryBytes;
constexpr size_t kSegmentBytes = kPayloadAt + kShmPayloadBytes;
static_assert(sizeof(ShmSegment::Header) <= kKeysAt && kPayloadAt % kLargestPage == 0 &&
              kShmPayloadBytes % kLargestPage == 0);
// A ring takes at least so much memory at a time.
constexpr size_t kFillBytes = 16 << 10;

template <typename T>
void Put(std::byte* entry, EntryField field, T value) {
  std::memcpy(entry + field, &value, sizeof(value));
}
template <typename T>
void Get(const std::byte* entry, EntryField field, T& value) {
  std::memcpy(&value, entry + field, sizeof(value));
}

absl::Status CheckEntry(const ShmEntry& entry) {
  const bool is_piece = entry.kind == ShmEntry::Kind::kPiece;
  const bool is_frame = entry.kind == ShmEntry::Kind::kFrame;
  const bool is_written = entry.kind == ShmEntry::Kind::kWritten;
  if (!is_piece && !is_frame && !is_written && entry.kind != ShmEntry::Kind::kLastPiece) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it has kind %d, must be 1 to 4", static_cast<int>(entry.kind)));
  }
  if (is_piece ? entry.frame_bytes != 0
               : entry.frame_bytes < 1 || entry.frame_bytes > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its frame has %d bytes, must be %s", entry.frame_bytes, is_piece ? "0" : "1 to 64"));
  }
  if (is_frame && entry.payload_bytes + entry.piece_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it is no write and has %d and %d bytes of payload, must be 0",
                        entry.payload_bytes, entry.piece_bytes));
  }
  if (is_written && entry.piece_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its payload is written and its piece has %d bytes, must be 0", entry.piece_bytes));
  }
  const uint64_t end = entry.piece_begin + entry.piece_bytes;
  const bool is_last = entry.kind == ShmEntry::Kind::kLastPiece;
  if (entry.piece_bytes > kShmPieceBytes || end < entry.piece_begin || end > entry.payload_bytes ||
      (is_last && end != entry.payload_bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its piece has %d bytes at %d of a write of %d, %s", entry.piece_bytes, entry.piece_begin,
        entry.payload_bytes, is_last ? "must be its end" : "must be a part of it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShmSegment> ShmSegment::Make() {
  BRAID_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Reserve("braid link", kSegmentBytes));
  BRAID_RETURN_IF_ERROR(memory.Fill(0, kKeysEnd));
  new (memory.data()) Header();
  for (size_t i = 0; i < kShmKeys; ++i) new (memory.data() + kKeysAt + i * sizeof(ShmKey)) ShmKey();
  ShmSegment segment(std::move(memory));
  const absl::Status filled = segment.FillEntries(1);
  if (absl::IsUnimplemented(filled)) {
    BRAID_RETURN_IF_ERROR(segment.memory_.Fill(0, kSegmentBytes));
    segment.filled_entries_ = kPayloadAt - kEntriesAt;
    segment.filled_payload_ = kShmPayloadBytes;
  } else if (!filled.ok()) {
    return filled;
  }
  return segment;
}

absl::StatusOr<ShmSegment> ShmSegment::Map(Descriptor descriptor) {
  BRAID_ASSIGN_OR_RETURN(SharedMemory memory,
                         SharedMemory::Map(std::move(descriptor), kSegmentBytes));
  return ShmSegment(std::move(memory));
}

absl::Status ShmSegment::FillRing(size_t begin, uint64_t end, uint64_t& filled) {
  if (end <= filled) return absl::OkStatus();
  const uint64_t to = RoundUp(end, std::max(kFillBytes, SystemPage()));
  BRAID_RETURN_IF_ERROR(memory_.Populate(begin + filled, to - filled));
  filled = to;
  return absl::OkStatus();
}

absl::Status ShmSegment::FillEntries(uint64_t end) {
  return FillRing(kEntriesAt, end, filled_entries_);
}

absl::Status ShmSegment::FillPayload(uint64_t end) {
  return FillRing(kPayloadAt, end, filled_payload_);
}

ShmKey& ShmSegment::key(uint64_t token) const {
  return reinterpret_cast<ShmKey*>(memory_.data() + kKeysAt)[token % kShmKeys];
}

std::byte* ShmSegment::entry(uint64_t number) const {
  return memory_.data() + kEntriesAt + number % kShmEntries * kShmEntryBytes;
}

std::byte* ShmSegment::payload(uint64_t position) const {
  return memory_.data() + kPayloadAt + position % kShmPayloadBytes;
}

absl::StatusOr<ShmSender::Room> ShmSender::FindRoom() {
  const ShmSegment::Header& header = segment_.header();
  const Room taken{.entries = header.taken.load(),
                   .bytes = header.payload_taken.load(std::memory_order_relaxed)};
  AfterLoad();
  if (taken.entries < taken_.entries || taken.entries > published_ || taken.bytes < taken_.bytes ||
      taken.bytes > payload_put_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it has taken %d frames and %d bytes, must be from %d to %d and from %d to %d",
        taken.entries, taken.bytes, taken_.entries, published_, taken_.bytes, payload_put_));
  }
  taken_ = taken;
  const uint64_t end = (published_ % kShmEntries + 1) * kShmEntryBytes;
  BRAID_RETURN_IF_ERROR(segment_.FillEntries(end));
  return Room{.entries = kShmEntries - (published_ - taken.entries),
              .bytes = kShmPayloadBytes - (payload_put_ - taken.bytes)};
}

void ShmSender::Publish(const ShmEntry& entry) {
  std::byte* const at = segment_.entry(published_);
  Put(at, kKind, entry.kind);
  Put(at, kFrameBytes, entry.frame_bytes);
  Put(at, kToken, entry.token);
  Put(at, kOffset, entry.offset);
  Put(at, kPayloadBytes, entry.payload_bytes);
  Put(at, kPieceBegin, entry.piece_begin);
  Put(at, kPieceBytes, entry.piece_bytes);
  std::memcpy(at + kFrame, entry.frame, entry.frame_bytes);
  BeforeStore();
  segment_.header().published.store(++published_);
}

absl::StatusOr<bool> ShmSender::PutFrame(std::span<const std::byte> frame,
                                         std::optional<uint64_t> written) {
  BRAID_ASSIGN_OR_RETURN(const Room room, FindRoom());
  if (room.entries == 0) return false;
  ShmEntry entry{.kind = written.has_value() ? ShmEntry::Kind::kWritten : ShmEntry::Kind::kFrame,
                 .frame_bytes = static_cast<uint8_t>(frame.size()),
                 .payload_bytes = written.value_or(0)};
  std::memcpy(entry.frame, frame.data(), frame.size());
  Publish(entry);
  return true;
}

absl::StatusOr<bool> ShmSender::PutWrite(const Write& write, uint64_t& begin,
                                         absl::FunctionRef<void()> published) {
  ShmEntry entry{
      .token = write.token, .offset = write.offset, .payload_bytes = write.payload.size()};
  while (true) {
    BRAID_ASSIGN_OR_RETURN(const Room room, FindRoom());
    const uint64_t left = write.payload.size() - begin;
    // A piece lies in one run.
    const uint64_t run = kShmPayloadBytes - payload_put_ % kShmPayloadBytes;
    const uint64_t bytes = std::min({left, room.bytes, run, uint64_t{kShmPieceBytes}});
    if (room.entries == 0 || (bytes == 0 && left > 0)) return false;
    if (bytes > 0) {
      const uint64_t at = payload_put_ % kShmPayloadBytes;
      BRAID_RETURN_IF_ERROR(segment_.FillPayload(at + bytes));
      StreamingCopy(segment_.payload(payload_put_), write.payload.data() + begin, bytes);
    }
    payload_put_ += bytes;
    entry.piece_begin = begin;
    entry.piece_bytes = bytes;
    begin += bytes;
    const bool is_last = bytes == left;
    entry.kind = is_last ? ShmEntry::Kind::kLastPiece : ShmEntry::Kind::kPiece;
    if (is_last) {
      entry.frame_bytes = static_cast<uint8_t>(write.frame.size());
      std::memcpy(entry.frame, write.frame.data(), write.frame.size());
    }
    Publish(entry);
    if (is_last) return true;
    published();
  }
}

// Either side first says that it will wait, or what it has done, and then looks whether the other
// did: in one order of all that is sequentially consistent, not both can miss it.
bool ShmSender::MustWake() {
  std::atomic<uint32_t>& sleeps = segment_.header().receiver_sleeps;
  return sleeps.load() != 0 && sleeps.exchange(0) != 0;
}

absl::StatusOr<bool> ShmSender::WaitsForRoom() {
  segment_.header().sender_waits.store(1);
  BRAID_ASSIGN_OR_RETURN(const Room room, FindRoom());
  return room.entries == 0 || room.bytes == 0;
}

bool ShmReceiver::HasNext() const {
  return segment_.header().published.load(std::memory_order_relaxed) != taken_;
}

absl::StatusOr<bool> ShmReceiver::Next(ShmEntry& entry) {
  const uint64_t published = segment_.header().published.load(std::memory_order_acquire);
  if (published == taken_) return false;
  AfterLoad();
  if (published < taken_ || published - taken_ > kShmEntries) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it has sent %d frames, must be from %d to %d", published, taken_, taken_ + kShmEntries));
  }
  std::byte copy[kShmEntryBytes];
  std::memcpy(copy, segment_.entry(taken_), kShmEntryBytes);
  Get(copy, kKind, entry.kind);
  Get(copy, kFrameBytes, entry.frame_bytes);
  Get(copy, kToken, entry.token);
  Get(copy, kOffset, entry.offset);
  Get(copy, kPayloadBytes, entry.payload_bytes);
  Get(copy, kPieceBegin, entry.piece_begin);
  Get(copy, kPieceBytes, entry.piece_bytes);
  BRAID_RETURN_IF_ERROR(CheckEntry(entry));
  std::memcpy(entry.frame, copy + kFrame, entry.frame_bytes);
  const uint64_t run = kShmPayloadBytes - payload_taken_ % kShmPayloadBytes;
  if (entry.piece_bytes > run) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its piece has %d bytes, must be at most %d there", entry.piece_bytes, run));
  }
  return true;
}

std::span<const std::byte> ShmReceiver::Payload(const ShmEntry& entry) const {
  return {segment_.payload(payload_taken_), static_cast<size_t>(entry.piece_bytes)};
}

bool ShmReceiver::Take(const ShmEntry& entry) {
  ShmSegment::Header& header = segment_.header();
  payload_taken_ += entry.piece_bytes;
  header.payload_taken.store(payload_taken_, std::memory_order_relaxed);
  BeforeStore();
  header.taken.store(++taken_);
  return header.sender_waits.load() != 0 && header.sender_waits.exchange(0) != 0;
}

bool ShmReceiver::Sleeps() {
  ShmSegment::Header& header = segment_.header();
  header.receiver_sleeps.store(1);
  if (header.published.load() == taken_) return true;
  // Who saw it meanwhile wakes for nothing.
  header.receiver_sleeps.store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace braid
