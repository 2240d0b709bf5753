// Worlds whose ranks are threads of the test, joined over TCP at 127.0.0.1; then their links are of
// the transport that the test names.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "api/dist.h"

namespace braid {

// The same program on every rank.
using RankProgram = std::function<absl::Status(dist::World& world)>;

struct WorldEnd {
  std::vector<absl::Status> programs;  // by rank
  std::vector<absl::Status> worlds;    // of Close
  absl::Duration wall;
};

// Each rank's Close gets OK, whatever its program returned.
// `hosts`: on how many machines the ranks are said to be, in turn.
WorldEnd RunWorld(int ranks, const RankProgram& program, const std::string& transport = "tcp",
                  int hosts = 1);

// Of every transport that joins threads of a process.
inline constexpr const char* kTransports[] = {"tcp", "shm", "loopback"};

// Tests of what is the same over every transport.
class TransportTest : public ::testing::TestWithParam<const char*> {
 protected:
  static WorldEnd RunWorld(int ranks, const RankProgram& program) {
    return braid::RunWorld(ranks, program, GetParam());
  }
};

// Such ones on several numbers of ranks.
class RanksAndTransportTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  static WorldEnd RunWorld(const RankProgram& program) {
    const auto [ranks, transport] = GetParam();
    return braid::RunWorld(ranks, program, transport);
  }
};

// That every rank's part and end went well.
void ExpectAllWell(const WorldEnd& end);

}  // namespace braid
