// What the peer of an rdma link says: messages of its queue pair, and notes over the connection
// beside it, which begin with its greeting.
#include <glog/logging.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "comm/rdma/rdma_wire.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

// What is taken for a message has the bytes that such a message is put as.
void RunMessage(Bytes input) {
  const std::span<const std::byte> bytes = AsBytes(input);
  const absl::StatusOr<RdmaMessage> message = ReadRdmaMessage(bytes);
  if (!message.ok()) return;
  CHECK_LE(message->frame_bytes, kMaxFrameBytes);
  CHECK_EQ(bytes.size(), kRdmaHeadBytes + message->frame_bytes);
  std::array<std::byte, kRdmaHeadBytes> head{};
  PutRdmaHead(*message, head);
  CHECK(std::ranges::equal(head, bytes.first(kRdmaHeadBytes)));
}

void RunNotes(InputReader reader) {
  int ends[2];
  PCHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  RdmaNotes notes{Socket(ends[0])};
  const Socket theirs(ends[1]);
  absl::Status status;
  bool is_closed = false, has_hello = false;
  while (!reader.AtEnd() && status.ok() && !is_closed) {
    const Bytes said = reader.Take(1 + reader.Byte());
    if (!said.empty()) theirs.Write(AsBytes(said));
    const RdmaNotes::Heard heard = notes.Hear();
    if (heard.hello.has_value()) {
      CHECK(!std::exchange(has_hello, true)) << "once";
      const auto again = ReadRdmaHello(EncodeRdmaHello(*heard.hello));
      CHECK(again.ok()) << again.status();
    }
    CHECK(has_hello || !heard.is_ready);
    is_closed = heard.reason.has_value();
    if (is_closed) CHECK_LE(heard.reason->size(), kMaxRdmaReason);
    status = heard.status;
  }
}

void Run(Bytes input) {
  InputReader reader(input);
  if (reader.Byte() % 2 == 0) return RunNotes(reader);
  RunMessage(input.subspan(std::min<size_t>(1, input.size())));
}

}  // namespace

Target RdmaTarget() { return {.name = "rdma", .run = Run}; }

}  // namespace braid::fuzz
