// One simulated TCP connection: two ends, a pipe each way. Part of the simulated network.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "comm/network/sim_network.h"
#include "comm/network/socket.h"
#include "runtime/base/simulation.h"

namespace braid {

// What all connections of a network have in common.
struct SimWires {
  Simulation& world;
  const SimNetworkOptions options;
  std::set<std::pair<int, int>> blocked;  // pairs of processes, the lower first

  bool are_blocked(int a, int b) const { return blocked.contains(std::minmax(a, b)); }
  Nanoseconds DrawDelay();
  size_t DrawBuffer();
};

// Side 0 has dialed.
class SimConnection : public std::enable_shared_from_this<SimConnection> {
 public:
  struct Side {
    int process = 0;
    SocketAddress address;
  };
  SimConnection(std::shared_ptr<SimWires> wires, const Side& dialer, const Side& listener);

  int process(int side) const { return ends_[side].process; }
  bool joins(int a, int b) const {
    return std::minmax(process(0), process(1)) == std::minmax(a, b);
  }
  bool is_open(int side) const { return ends_[side].descriptor >= 0; }

  // Gives a side its descriptor; the Socket closes it.
  Socket Open(int side);

  void Connected();                // side 0 has heard of it
  void Fail(int side, int error);  // this side only: errno's value, of a read or write
  void Reset();                    // both sides, at once
  void Unblock();                  // what waited goes on
  void WatchSilence();             // the pair is blocked from now on
  // Its process was killed: the peer reads an end or a reset, as it is drawn.
  void Die(int side);

 private:
  friend class SimSocketEnd;

  struct Chunk {
    enum class Kind { kBytes, kEnd, kReset };
    Kind kind = Kind::kBytes;
    std::string bytes;
  };
  struct End {
    int process = 0;
    SocketAddress address;
    int descriptor = -1;
    bool is_closed = false;  // for good, not merely not accepted yet
    bool is_connected = false;
    int error = 0;           // that the next read or write finds
    bool is_broken = false;  // after an error
    bool has_ended = false;  // writes no more
    // What came for this end.
    std::string arrived;
    size_t arrived_begin = 0;
    bool end_arrived = false;
    // What this end has sent.
    std::deque<Chunk> under_way;
    size_t bytes_under_way = 0;
    size_t buffer = 0;
    Nanoseconds last_arrival = 0;
    int missed = 0;  // arrivals that were due while the pair was blocked
    Nanoseconds heard = 0;
    int silence_seconds = 0;  // 0: nobody looks
    bool allows_slow_reader = false;

    size_t unread() const { return arrived.size() - arrived_begin; }
  };

  bool is_blocked() const;
  size_t RoomOf(int side) const;
  IoResult Read(int side, std::span<const iovec> parts);
  IoResult Write(int side, std::span<const iovec> parts);
  void EndWriting(int side);
  void Close(int side);
  void Send(int side, Chunk chunk);
  void SendReset(int side);
  void ArriveLater(int side);
  void Arrive(int side);
  void CheckSilence(int side);
  void Show(int side);

  const std::shared_ptr<SimWires> wires_;
  std::array<End, 2> ends_;
};

}  // namespace braid
