#include "comm/tcp/tcp_outbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "glog/logging.h"

namespace braid {
namespace {

// How much a thread that adds a packet writes itself, and the reactor in one go: long enough to
// forget the cost of a call, short enough not to hold up what else they have to do.
constexpr size_t kAddBytes = 512 << 10;
constexpr size_t kFlushBytes = 1 << 20;
// Packets that one system call takes.
constexpr size_t kMaxPackets = 64;

}  // namespace

TcpOutbox::TcpOutbox(const Socket& socket) : socket_(socket), packets_(kFirstPackets) {
  answers_.reserve(kFirstPackets);
}

TcpOutbox::Added TcpOutbox::Add(TcpHeader header, std::span<const std::byte> frame,
                                std::span<const std::byte> payload, Link::DoneCallback done) {
  MutexLock lock(mutex_);
  Added added;
  if (!stopped_.ok()) {
    if (!done) return added;
    answers_.push_back({std::move(done), stopped_});
    added.asks_for_service = AskForService();
    return added;
  }
  Push(header, frame, payload, std::move(done));
  if (is_writing_ || is_waiting_ || error_ != 0) return added;
  packets_.back().is_written = &added.is_written;
  const Progress progress = WriteOut(kAddBytes);
  for (size_t i = 0; i < packets_.size() && !added.is_written; ++i) {
    if (packets_[i].is_written == &added.is_written) packets_[i].is_written = nullptr;
  }
  is_waiting_ = progress == Progress::kBlocked || progress == Progress::kMore;
  const bool has_more = progress != Progress::kEmpty || !answers_.empty() || !stopped_.ok();
  added.asks_for_service = has_more && AskForService();
  return added;
}

bool TcpOutbox::AddForLater(TcpHeader header, std::span<const std::byte> frame) {
  MutexLock lock(mutex_);
  if (!stopped_.ok()) return false;
  Push(header, frame, {}, nullptr);
  return !is_writing_ && !is_waiting_ && error_ == 0;
}

void TcpOutbox::Push(TcpHeader header, std::span<const std::byte> frame,
                     std::span<const std::byte> payload, Link::DoneCallback done) {
  Packet packet;
  header.sequence = next_sequence_++;
  header.frame_bytes = static_cast<uint16_t>(frame.size());
  header.payload_bytes = payload.size();
  packet.head_bytes = kTcpHeaderBytes + frame.size();
  std::memcpy(packet.head.data() + kTcpHeaderBytes, frame.data(), frame.size());
  SealTcpPacket(header, std::span(packet.head).first(packet.head_bytes));
  packet.payload = payload;
  packet.done = std::move(done);
  packets_.push_back(std::move(packet));
  ++frames_;
  bytes_ += payload.size();
}

bool TcpOutbox::Stop(const absl::Status& reason, std::string farewell) {
  MutexLock lock(mutex_);
  if (!stopped_.ok()) return false;
  stopped_ = reason;
  if (!farewell.empty()) {
    farewell.resize(std::min(farewell.size(), kMaxCloseText));
    farewell_.assign(kTcpHeaderBytes, '\0');
    farewell_ += farewell;
  }
  if (!is_writing_) DropNotBegun();
  return AskForService();
}

void TcpOutbox::BeginService() {
  MutexLock lock(mutex_);
  is_service_asked_ = false;
}

TcpOutbox::Progress TcpOutbox::Flush() {
  MutexLock lock(mutex_);
  if (is_writing_) return Progress::kBusy;
  const Progress progress = WriteOut(kFlushBytes);
  is_waiting_ = progress == Progress::kBlocked || progress == Progress::kMore;
  return progress;
}

void TcpOutbox::TakeAnswers(std::vector<Answer>& answers) {
  answers.clear();
  MutexLock lock(mutex_);
  answers.swap(answers_);
}

int TcpOutbox::error() const {
  MutexLock lock(mutex_);
  return error_;
}

void TcpOutbox::Abandon() {
  MutexLock lock(mutex_);
  CHECK(!stopped_.ok());
  if (is_writing_) return;
  for (size_t i = 0; i < packets_.size(); ++i) {
    if (packets_[i].done) answers_.push_back({std::move(packets_[i].done), stopped_});
  }
  packets_.clear();
}

bool TcpOutbox::is_idle() const {
  MutexLock lock(mutex_);
  return packets_.empty() && !is_writing_;
}

bool TcpOutbox::borrows_payload() const {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < packets_.size(); ++i) {
    if (packets_[i].done) return true;
  }
  return is_writing_;
}

uint64_t TcpOutbox::frames() const {
  MutexLock lock(mutex_);
  return frames_;
}

uint64_t TcpOutbox::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

TcpOutbox::Progress TcpOutbox::WriteOut(size_t budget) {
  while (!packets_.empty()) {
    if (error_ != 0) return Progress::kBroken;
    if (budget == 0) return Progress::kMore;
    iovec parts[2 * kMaxPackets];
    // Copies: packets move when others add more than there is room for, while the lock is open.
    std::byte heads[kMaxPackets][sizeof(Packet::head)];
    size_t count = 0, wanted = 0;
    const auto add = [&](const std::byte* data, size_t bytes) {
      bytes = std::min(bytes, budget - wanted);
      if (bytes == 0) return;
      parts[count++] = {const_cast<std::byte*>(data), bytes};
      wanted += bytes;
    };
    for (size_t i = 0; i < std::min(packets_.size(), kMaxPackets) && wanted < budget; ++i) {
      const Packet& packet = packets_[i];
      const size_t head = std::min(packet.sent, packet.head_bytes);
      std::memcpy(heads[i], packet.head.data() + head, packet.head_bytes - head);
      add(heads[i], packet.head_bytes - head);
      const size_t body = packet.sent - head;
      add(packet.payload.data() + body, packet.payload.size() - body);
    }
    is_writing_ = true;
    mutex_.Unlock();
    const IoResult written = socket_.WriteParts(std::span(parts).first(count));
    mutex_.Lock();
    is_writing_ = false;
    Advance(written.bytes);
    budget -= written.bytes;
    if (!written.is_blocked()) error_ = written.error;
    if (!stopped_.ok()) DropNotBegun();
    if (error_ != 0) return Progress::kBroken;
    if (written.bytes < wanted) return Progress::kBlocked;
  }
  return Progress::kEmpty;
}

void TcpOutbox::Advance(size_t written) {
  while (written > 0) {
    Packet& packet = packets_.front();
    const size_t part = std::min(written, packet.size() - packet.sent);
    packet.sent += part;
    written -= part;
    if (packet.sent < packet.size()) return;
    if (packet.is_written != nullptr) {
      *packet.is_written = true;
    } else if (packet.done) {
      answers_.push_back({std::move(packet.done), absl::OkStatus()});
    }
    packets_.pop_front();
  }
}

void TcpOutbox::DropNotBegun() {
  if (std::exchange(has_dropped_, true)) return;
  const size_t begun = !packets_.empty() && packets_.front().sent > 0 ? 1 : 0;
  for (size_t i = begun; i < packets_.size(); ++i) {
    if (packets_[i].done) answers_.push_back({std::move(packets_[i].done), stopped_});
  }
  next_sequence_ -= packets_.size() - begun;
  while (packets_.size() > begun) packets_.pop_back();
  if (farewell_.empty()) return;
  const auto bytes = std::as_writable_bytes(std::span(farewell_));
  SealTcpPacket({.kind = TcpHeader::Kind::kClose,
                 .frame_bytes = static_cast<uint16_t>(bytes.size() - kTcpHeaderBytes),
                 .sequence = next_sequence_++},
                bytes);
  Packet last = {};
  last.payload = bytes;
  packets_.push_back(std::move(last));
}

bool TcpOutbox::AskForService() { return !std::exchange(is_service_asked_, true); }

}  // namespace braid
