// What the peer of a shm link may have written into the memory that both map, what it grants of its
// heap, and what it says over the socket beside it.
#include <fcntl.h>
#include <glog/logging.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/shm/shm_bell.h"
#include "comm/shm/shm_landing.h"
#include "comm/shm/shm_segment.h"
#include "runtime/base/shared_heap.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

// Entries as any bytes, and counts of them that need not be true.
void RunMemory(InputReader reader) {
  auto theirs = ShmSegment::Make();
  CHECK(theirs.ok()) << theirs.status();
  auto mapped = ShmSegment::Map(Descriptor(dup(theirs->memory().descriptor())));
  CHECK(mapped.ok()) << mapped.status();
  ShmReceiver receiver(*std::move(mapped));
  uint64_t written = 0;
  bool is_wrong = false;
  while (!reader.AtEnd() && !is_wrong) {
    const uint8_t how = reader.Byte();
    const Bytes entry = reader.Take(std::min<size_t>(reader.Byte(), kShmEntryBytes));
    std::copy(AsBytes(entry).begin(), AsBytes(entry).end(), theirs->entry(written));
    written += how == 0xff ? 1 << 16 : how % 4;
    theirs->header().published.store(written);
    ShmEntry taken;
    for (int i = 0; i < 8 && !is_wrong; ++i) {
      const absl::StatusOr<bool> is_there = receiver.Next(taken);
      is_wrong = !is_there.ok();
      if (is_wrong || !*is_there) break;
      unsigned sum = 0;
      for (const std::byte byte : receiver.Payload(taken)) sum += static_cast<unsigned>(byte);
      CHECK_LE(taken.piece_begin + taken.piece_bytes, taken.payload_bytes) << sum;
      CHECK_LE(taken.frame_bytes, kMaxFrameBytes);
      receiver.Take(taken);
    }
  }
}

// Grants of any place in a heap of two pages, and writes of up to 255 bytes by any key.
void RunGrants(InputReader reader) {
  constexpr uint64_t kHeapBytes = 2 * 4096;
  auto theirs = ShmSegment::Make();
  CHECK(theirs.ok()) << theirs.status();
  auto heap = SharedHeap::Make(kHeapBytes);
  CHECK(heap.ok()) << heap.status();
  const auto all = (*heap)->Allocate(kHeapBytes);
  CHECK(all.ok()) << all.status();
  ShmPeerHeap mapped;
  CHECK(mapped.Map(Descriptor(dup((*heap)->descriptor()))).ok());
  const std::vector<std::byte> payload(255, std::byte{1});
  absl::StatusOr<bool> is_written = false;
  while (!reader.AtEnd() && is_written.ok()) {
    const uint64_t token = reader.Byte();
    ShmKey& key = theirs->key(token);
    key.token = reader.Byte() % 2 == 0 ? token : token + 1;
    const uint64_t granted = key.offset = reader.Long();
    const uint64_t bytes = key.bytes = reader.Long();
    const LandingWrite write{.token = token, .offset = reader.Long(), .bytes = reader.Byte()};
    is_written = mapped.Write(*theirs, write, std::span(payload).first(write.bytes));
    CHECK_EQ(key.is_used.load(), 0u);
    key.access = ShmAccess::kRead;
    unsigned sum = 0;
    mapped.Read(*theirs, token, write.bytes, [&](std::span<const std::byte> lent) {
      for (const std::byte byte : lent) sum += static_cast<unsigned>(byte);
      CHECK_LE(granted + lent.size(), kHeapBytes) << sum;
    });
    CHECK(!mapped.WriteLent(*theirs, write, std::span(payload).first(write.bytes)));
    key.access = ShmAccess::kBoth;
    if (mapped.WriteLent(*theirs, write, std::span(payload).first(write.bytes))) {
      CHECK(key.token.load() == token && write.offset + write.bytes <= bytes);
      CHECK_LE(granted + bytes, kHeapBytes);
    }
    key.access = ShmAccess::kWrite;
    CHECK_EQ(key.is_used.load(), 0u);
    if (!is_written.ok() || !*is_written) continue;
    CHECK(key.token.load() == token && write.offset + write.bytes <= bytes);
    CHECK_LE(granted + bytes, kHeapBytes);
  }
}

void RunBell(InputReader reader) {
  int ends[2];
  PCHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  ShmBell bell{Socket(ends[0])};
  const Socket theirs(ends[1]);
  absl::Status status;
  bool is_closed = false;
  while (!reader.AtEnd() && status.ok() && !is_closed) {
    const Bytes said = reader.Take(1 + reader.Byte());
    if (!said.empty()) theirs.Write(AsBytes(said));
    const ShmBell::Heard heard = bell.Hear();
    CHECK(!heard.memory.is_open() && !heard.heap.is_open()) << "none was sent";
    is_closed = heard.reason.has_value();
    if (is_closed) CHECK_LE(heard.reason->size(), kMaxShmReason);
    status = heard.status;
  }
}

void Run(Bytes input) {
  InputReader reader(input);
  const int what = reader.Byte() % 4;
  if (what == 0) return RunBell(reader);
  if (what == 2) return RunGrants(reader);
  RunMemory(reader);
}

}  // namespace

Target ShmTarget() { return {.name = "shm", .run = Run}; }

}  // namespace braid::fuzz
