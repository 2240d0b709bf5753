#include "comm/network/sim_connection.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "glog/logging.h"

namespace braid {

Nanoseconds SimWires::DrawDelay() {
  const bool is_long = world.Below(options.rarity) == 0;
  const Nanoseconds most = is_long ? options.longest_delay : options.usual_delay;
  return static_cast<Nanoseconds>(world.Below(most)) + 1;
}

// As many small ones as big ones: by powers of two.
size_t SimWires::DrawBuffer() {
  const int doublings = std::bit_width(options.most_buffer / options.least_buffer);
  return std::min(options.most_buffer, options.least_buffer << world.Below(doublings));
}

class SimSocketEnd final : public SocketEnd {
 public:
  SimSocketEnd(std::shared_ptr<SimConnection> connection, int side)
      : connection_(std::move(connection)), side_(side) {}
  ~SimSocketEnd() override { connection_->Close(side_); }

  int descriptor() const override { return end().descriptor; }
  IoResult Read(std::span<const iovec> parts) override { return connection_->Read(side_, parts); }
  IoResult Write(std::span<const iovec> parts) override { return connection_->Write(side_, parts); }
  void ShutdownWrite() override { connection_->EndWriting(side_); }

  absl::StatusOr<SocketAddress> LocalAddress() const override { return end().address; }
  absl::StatusOr<SocketAddress> PeerAddress() const override {
    if (!end().is_connected || end().is_broken) return SocketError(ENOTCONN);
    return connection_->ends_[1 - side_].address;
  }
  absl::Status ConnectResult() override {
    if (const int error = std::exchange(end().error, 0); error != 0) return SocketError(error);
    return end().is_connected ? absl::OkStatus() : SocketError(ENOTCONN);
  }
  absl::StatusOr<Socket> Accept() override { return SocketError(EINVAL); }
  absl::Status Prepare(int silence_seconds) override {
    end().silence_seconds = silence_seconds;
    if (connection_->is_blocked()) connection_->WatchSilence();
    return absl::OkStatus();
  }
  absl::Status AllowSlowReader() override {
    end().allows_slow_reader = true;
    return absl::OkStatus();
  }
  bool IsUnanswered(int silence_seconds) const override {
    return connection_->is_blocked() && !end().under_way.empty() &&
           connection_->wires_->world.Now() - end().heard >= silence_seconds * kSecond;
  }
  size_t UnconfirmedBytes() const override { return end().bytes_under_way; }

 private:
  SimConnection::End& end() const { return connection_->ends_[side_]; }

  const std::shared_ptr<SimConnection> connection_;
  const int side_;
};

SimConnection::SimConnection(std::shared_ptr<SimWires> wires, const Side& dialer,
                             const Side& listener)
    : wires_(std::move(wires)) {
  for (const int side : {0, 1}) {
    End& end = ends_[side];
    end.process = (side == 0 ? dialer : listener).process;
    end.address = (side == 0 ? dialer : listener).address;
    end.buffer = wires_->DrawBuffer();
    end.heard = wires_->world.Now();
  }
  ends_[1].is_connected = true;
}

Socket SimConnection::Open(int side) {
  CHECK(!is_open(side) && !ends_[side].is_closed);
  ends_[side].descriptor = wires_->world.OpenDescriptor(process(side));
  Show(side);
  return Socket(std::make_unique<SimSocketEnd>(shared_from_this(), side));
}

bool SimConnection::is_blocked() const { return wires_->are_blocked(process(0), process(1)); }

void SimConnection::Show(int side) {
  const End& end = ends_[side];
  if (!is_open(side)) return;
  wires_->world.SetDescriptor(end.descriptor,
                              {.readable = end.unread() > 0 || end.end_arrived,
                               .writable = end.is_connected && (end.has_ended || RoomOf(side) > 0),
                               .is_broken = end.is_broken || (end.has_ended && end.end_arrived)});
}

size_t SimConnection::RoomOf(int side) const {
  const size_t used = ends_[side].bytes_under_way + ends_[1 - side].unread();
  return ends_[side].buffer - std::min(used, ends_[side].buffer);
}

IoResult SimConnection::Read(int side, std::span<const iovec> parts) {
  End& end = ends_[side];
  if (const size_t unread = end.unread(); unread > 0) {
    size_t wanted = 0;
    for (const iovec& part : parts) wanted += part.iov_len;
    wanted = std::min(wanted, unread);
    if (wires_->world.Below(4) == 0) wanted = std::min(wanted, 1 + wires_->world.Below(wanted));
    size_t taken = 0;
    for (const iovec& part : parts) {
      const size_t bytes = std::min(part.iov_len, wanted - taken);
      if (bytes > 0) std::memcpy(part.iov_base, end.arrived.data() + end.arrived_begin, bytes);
      end.arrived_begin += bytes;
      taken += bytes;
    }
    if (end.unread() == 0) {
      end.arrived.clear();
      end.arrived_begin = 0;
    }
    Show(side);
    Show(1 - side);  // has room again
    return {.bytes = taken};
  }
  if (const int error = std::exchange(end.error, 0); error != 0) return {.error = error};
  if (end.is_broken || end.end_arrived) return {};
  return {.error = end.is_connected ? EAGAIN : ENOTCONN};
}

IoResult SimConnection::Write(int side, std::span<const iovec> parts) {
  End& end = ends_[side];
  if (const int error = std::exchange(end.error, 0); error != 0) return {.error = error};
  if (end.is_broken || end.has_ended) return {.error = EPIPE};
  if (!end.is_connected) return {.error = ENOTCONN};
  std::string bytes;
  size_t room = RoomOf(side);
  for (const iovec& part : parts) {
    const size_t taken = std::min(part.iov_len, room);
    bytes.append(static_cast<const char*>(part.iov_base), taken);
    room -= taken;
  }
  if (bytes.empty()) return {.error = EAGAIN};
  const size_t total = bytes.size();
  // One packet or a few.
  while (bytes.size() > 1 && wires_->world.Below(4) == 0) {
    const size_t first = 1 + wires_->world.Below(bytes.size() - 1);
    Send(side, {.bytes = bytes.substr(0, first)});
    bytes.erase(0, first);
  }
  Send(side, {.bytes = std::move(bytes)});
  Show(side);
  return {.bytes = total};
}

void SimConnection::EndWriting(int side) {
  End& end = ends_[side];
  if (end.is_broken || std::exchange(end.has_ended, true)) return;
  if (end.is_connected) Send(side, {.kind = Chunk::Kind::kEnd});
  Show(side);
}

void SimConnection::Close(int side) {
  End& end = ends_[side];
  // What is not read, or a dial that is given up, is a reset for the peer.
  if ((end.unread() > 0 || !end.is_connected) && !end.is_broken) {
    SendReset(side);
  } else {
    EndWriting(side);
  }
  end.is_closed = true;
  wires_->world.CloseDescriptor(std::exchange(end.descriptor, -1));
}

void SimConnection::Die(int side) {
  End& end = ends_[side];
  if (end.is_broken) return;
  if (end.unread() > 0 || wires_->world.Below(2) == 0) {
    SendReset(side);
  } else {
    EndWriting(side);
  }
  end.is_broken = true;
  end.error = ECONNRESET;
  Show(side);
}

// Some of what was written last never leaves.
void SimConnection::SendReset(int side) {
  End& end = ends_[side];
  if (std::exchange(end.has_ended, true) && end.is_broken) return;
  for (size_t lost = wires_->world.Below(end.under_way.size() + 1); lost > 0; --lost) {
    end.bytes_under_way -= end.under_way.back().bytes.size();
    end.under_way.pop_back();
  }
  Send(side, {.kind = Chunk::Kind::kReset});
}

void SimConnection::Send(int side, Chunk chunk) {
  End& end = ends_[side];
  end.bytes_under_way += chunk.bytes.size();
  end.under_way.push_back(std::move(chunk));
  ArriveLater(side);
}

void SimConnection::ArriveLater(int side) {
  End& end = ends_[side];
  const Nanoseconds now = wires_->world.Now();
  end.last_arrival = std::max(end.last_arrival, now + wires_->DrawDelay());
  wires_->world.RunAfter(end.last_arrival - now,
                         [self = shared_from_this(), side] { self->Arrive(side); });
}

// The oldest chunk that `side` has sent: arrivals of one time may swap, the bytes never do.
void SimConnection::Arrive(int side) {
  End& from = ends_[side];
  End& to = ends_[1 - side];
  if (from.under_way.empty()) return;
  if (is_blocked()) {
    ++from.missed;
    return;
  }
  const Chunk chunk = std::move(from.under_way.front());
  from.under_way.pop_front();
  from.bytes_under_way -= chunk.bytes.size();
  from.heard = to.heard = wires_->world.Now();
  if (to.is_broken) return;
  to.is_connected = true;
  switch (chunk.kind) {
    case Chunk::Kind::kBytes:
      // Nobody reads it any more: the sender is told.
      if (to.is_closed) {
        SendReset(1 - side);
        to.is_broken = true;
        return;
      }
      to.arrived += chunk.bytes;
      break;
    case Chunk::Kind::kEnd:
      to.end_arrived = true;
      break;
    case Chunk::Kind::kReset:
      return Fail(1 - side, to.end_arrived ? EPIPE : ECONNRESET);
  }
  Show(1 - side);
}

void SimConnection::Connected() {
  if (ends_[0].is_broken) return;
  ends_[0].is_connected = true;
  Show(0);
}

void SimConnection::Fail(int side, int error) {
  End& end = ends_[side];
  if (end.is_broken) return;
  end.error = error;
  end.is_broken = true;
  end.under_way.clear();
  end.bytes_under_way = 0;
  Show(side);
}

void SimConnection::Reset() {
  for (const int side : {0, 1}) Fail(side, ECONNRESET);
}

void SimConnection::Unblock() {
  for (const int side : {0, 1}) {
    for (int missed = std::exchange(ends_[side].missed, 0); missed > 0; --missed) ArriveLater(side);
  }
}

void SimConnection::WatchSilence() {
  for (const int side : {0, 1}) {
    if (ends_[side].silence_seconds == 0) continue;
    wires_->world.RunAfter(ends_[side].silence_seconds * kSecond,
                           [self = shared_from_this(), side] { self->CheckSilence(side); });
  }
}

// The system's own patience: keepalive for an idle connection, the user timeout for one with bytes
// under way unless that was switched off.
void SimConnection::CheckSilence(int side) {
  End& end = ends_[side];
  if (!is_blocked() || end.is_closed || end.is_broken) return;
  if (end.allows_slow_reader && !end.under_way.empty()) return;
  const Nanoseconds silence = wires_->world.Now() - end.heard;
  if (silence >= end.silence_seconds * kSecond) return Fail(side, ETIMEDOUT);
  wires_->world.RunAfter(end.silence_seconds * kSecond - silence,
                         [self = shared_from_this(), side] { self->CheckSilence(side); });
}

}  // namespace braid
