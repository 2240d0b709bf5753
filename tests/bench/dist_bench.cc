// How long an all_reduce of a process group takes: one process a rank, as a launcher starts them.
// Rank 0 prints a line for each size: bytes, and the median microseconds of a call.
//
//   build/release/bin/braid launch --nproc_per_node=2 -- build/release/bin/dist_bench
#include <braid/dist.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/bench/dist_measure.h"

namespace {

void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

absl::Status Measure(braid::dist::World& world) {
  const DistLibrary library{
      .rank = world.rank(),
      .size = world.size(),
      .all_reduce = [&](std::vector<float>& data) { Check(world.AllReduce(data)); },
      .broadcast = [&](std::vector<int>& data) { Check(world.Broadcast(data, 0)); }};
  try {
    MeasureSizes(world.rank(), [&](int64_t bytes) { return MeasureAllReduce(library, bytes); });
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
  return absl::OkStatus();
}

absl::Status Run() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<braid::dist::World> world,
                         braid::dist::World::Init());
  return world->Close(Measure(*world));
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
