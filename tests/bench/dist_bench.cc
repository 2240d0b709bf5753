// How long a call of a process group takes: one process a rank, as a launcher starts them. Rank 0
// prints a line for each size: bytes, median microseconds of a call, and what goes through a rank a
// second. The results are checked.
//
//   for rank in 0 1; do
//     RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 build/release/bin/dist_bench &
//   done; wait
#include <braid/dist.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr double kSecondsASize = 1;

absl::Status Measure(dist::World& world, int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> data(bytes / sizeof(float), 1);
  std::vector<double> times;
  std::vector<int> goes_on = {1};
  const auto began = Clock::now();
  while (goes_on[0] != 0) {
    for (int i = 0; i < 10; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      const auto start = Clock::now();
      BRAID_RETURN_IF_ERROR(world.AllReduce(data));
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      if (data.back() != static_cast<float>(world.size())) {
        return absl::DataLossError("an all_reduce gave a wrong sum");
      }
    }
    // Rank 0 decides for all.
    goes_on[0] = std::chrono::duration<double>(Clock::now() - began).count() < kSecondsASize;
    BRAID_RETURN_IF_ERROR(world.Broadcast(goes_on, 0));
  }
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  if (world.rank() == 0) {
    std::cout << absl::StrFormat("%10d bytes %10.1f us %8.2f GB/s\n", bytes, median * 1e6,
                                 static_cast<double>(bytes) / median / 1e9);
  }
  return absl::OkStatus();
}

absl::Status Run() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<dist::World> world, dist::World::Init());
  for (int64_t bytes = 4; bytes <= kMostBytes; bytes *= 8) {
    if (const absl::Status status = Measure(*world, bytes); !status.ok()) {
      return world->Close(status);
    }
  }
  return world->Close();
}

}  // namespace
}  // namespace braid

int main() {
  const absl::Status status = braid::Run();
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
