#include "comm/shm/shm_bell.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

enum Message : uint8_t { kMemory = 1, kRing = 2, kReason = 3, kHeap = 4 };

// kind, 0, the text's bytes in 16 bits
constexpr size_t kHeadBytes = 4;

}  // namespace

int ShmBell::Send(uint8_t kind, std::string_view text, int descriptor) const {
  std::array<std::byte, kHeadBytes> head{};
  head[0] = static_cast<std::byte>(kind);
  PutLittleEndian(head, 2, static_cast<uint16_t>(text.size()));
  iovec parts[] = {{head.data(), head.size()}, {const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = text.empty() ? 1 : 2;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_.descriptor(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

absl::Status ShmBell::SendMemory(int descriptor) const {
  const int error = Send(kMemory, "", descriptor);
  return error == 0 ? absl::OkStatus() : SocketError(error);
}

absl::Status ShmBell::SendHeap(int descriptor) const {
  const int error = Send(kHeap, "", descriptor);
  return error == 0 ? absl::OkStatus() : SocketError(error);
}

void ShmBell::Ring() const { Send(kRing, "", -1); }

bool ShmBell::PeerEnded() const {
  const int error = Send(kRing, "", -1);
  return error == EPIPE || error == ECONNRESET;
}

void ShmBell::SendReason(std::string_view reason) const {
  Send(kReason, reason.substr(0, kMaxShmReason), -1);
}

ShmBell::Heard ShmBell::Hear() {
  Heard heard;
  for (bool is_drained = false; !is_drained && heard.status.ok() && !heard.reason.has_value();) {
    heard.status = Receive(is_drained);
    if (const absl::Status read = Read(heard); !read.ok()) heard.status = read;
  }
  return heard;
}

absl::Status ShmBell::Receive(bool& is_drained) {
  std::array<std::byte, kMostRead> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(4 * sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received = 0;
  do {
    received = recvmsg(socket_.descriptor(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    is_drained = errno == EAGAIN || errno == EWOULDBLOCK;
    return is_drained ? absl::OkStatus() : absl::UnavailableError(std::strerror(errno));
  }
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
      descriptor_ = Descriptor(number);  // one too many is closed
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 && !descriptor_.is_open()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the peer's memory; raise what this process may have (ulimit "
        "-n)");
  }
  if (received == 0) return absl::UnavailableError("connection closed by the peer");
  unread_.insert(unread_.end(), bytes.begin(), bytes.begin() + received);
  is_drained = static_cast<size_t>(received) < bytes.size() && !descriptor_.is_open();
  return absl::OkStatus();
}

absl::Status ShmBell::Read(Heard& heard) {
  size_t at = 0;
  absl::Status status;
  while (unread_.size() - at >= kHeadBytes && status.ok() && !heard.reason.has_value()) {
    const std::span<const std::byte> rest = std::span<const std::byte>(unread_).subspan(at);
    const auto kind = static_cast<uint8_t>(rest[0]);
    const auto bytes = GetLittleEndian<uint16_t>(rest, 2);
    if (rest[1] != std::byte{0} || bytes > (kind == kReason ? kMaxShmReason : 0)) {
      status = absl::InvalidArgumentError(
          absl::StrFormat("its message of kind %d has %d bytes, must have at most %d", kind, bytes,
                          kind == kReason ? kMaxShmReason : 0));
    } else if (kind == kMemory && descriptor_.is_open() && !std::exchange(has_memory_, true)) {
      heard.memory = std::move(descriptor_);
    } else if (kind == kHeap && descriptor_.is_open() && !std::exchange(has_heap_, true)) {
      heard.heap = std::move(descriptor_);
    } else if (kind == kReason) {
      if (rest.size() < kHeadBytes + bytes) break;
      heard.reason = std::string(reinterpret_cast<const char*>(rest.data()) + kHeadBytes, bytes);
    } else if (kind != kRing) {
      status = absl::InvalidArgumentError(absl::StrFormat(
          "its message has kind %d, must be 1 or 4, once and with memory, 2 or 3", kind));
    }
    at += kHeadBytes + bytes;
  }
  unread_.erase(unread_.begin(),
                unread_.begin() + static_cast<ptrdiff_t>(std::min(at, unread_.size())));
  return status;
}

}  // namespace braid
