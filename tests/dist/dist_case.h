// Worlds whose ranks are threads of the test, joined over TCP on loopback.
#pragma once

#include <functional>
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
WorldEnd RunWorld(int ranks, const RankProgram& program,
                  absl::Duration timeout = absl::Seconds(60));

// That every rank's part and end went well.
void ExpectAllWell(const WorldEnd& end);

}  // namespace braid
