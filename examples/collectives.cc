// Process groups: one process a rank, each of which runs this program. Estimates pi from points
// that every rank draws for itself.
//
//   build/release/bin/collectives --spawn=3
//
// starts three ranks here; on several machines a launcher starts one process a rank, with RANK,
// WORLD_SIZE, MASTER_ADDR and BRAID_AUTH_TOKEN in its environment.
#include <braid/dist.h>

#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

namespace {

constexpr int64_t kPoints = 1'000'000;

absl::Status EstimatePi(braid::dist::World& world) {
  // Everybody knows what rank 0 chose.
  std::vector<uint64_t> seed = {world.rank() == 0 ? uint64_t{2026} : 0};
  BRAID_RETURN_IF_ERROR(world.Broadcast(seed, /*root=*/0));

  std::mt19937_64 random(seed[0] + static_cast<uint64_t>(world.rank()));
  std::uniform_real_distribution<double> coordinate(0, 1);
  std::vector<int64_t> inside = {0};
  for (int64_t i = 0; i < kPoints; ++i) {
    const double x = coordinate(random), y = coordinate(random);
    if (x * x + y * y < 1) ++inside[0];
  }
  std::vector<int64_t> of_each(world.size());
  BRAID_RETURN_IF_ERROR(world.Gather(inside, of_each, /*root=*/0));
  BRAID_RETURN_IF_ERROR(world.AllReduce(inside));

  if (world.rank() == 0) {
    for (int rank = 0; rank < world.size(); ++rank) {
      std::cout << "rank " << rank << ": " << of_each[rank] << " of " << kPoints << " inside\n";
    }
    const auto points = static_cast<double>(kPoints) * world.size();
    std::cout << "pi is about " << 4 * static_cast<double>(inside[0]) / points << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::dist::Main(argc, argv,
                           {.about = "Estimates pi from points that every rank draws for itself."},
                           EstimatePi);
}
