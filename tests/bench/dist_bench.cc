// How long an all_reduce of a process group takes: one process a rank, as a launcher starts them.
// Rank 0 prints a line for each size: bytes, and the median microseconds of a call.
//
//   build/release/bin/braid launch --nproc_per_node=2 -- build/release/bin/dist_bench
//
// With the word `batch`: how long 100 of them take, one by one and in a batch.
// BRAID_BENCH_TRANSPORT names the transport.
#include <braid/dist.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/dist_measure.h"

namespace {

void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

void MeasureBatches(braid::dist::World& world) {
  for (const int64_t bytes : {int64_t{4}, int64_t{1} << 10, int64_t{8} << 10, int64_t{32} << 10,
                              int64_t{64} << 10, int64_t{256} << 10}) {
    constexpr int64_t kCalls = 100;
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    const auto measure = [&](const std::function<void(std::span<float> data)>& sum) {
      const DistLibrary library{
          .rank = world.rank(),
          .size = world.size(),
          .all_reduce = sum,
          .broadcast = [&](std::vector<int>& data) { Check(world.Broadcast(data, 0)); }};
      return 1e6 * MeasureAllReduce(library, kCalls * bytes);
    };
    const auto part = [&](std::span<float> data, int64_t i) {
      return data.subspan(i * count, count);
    };
    const double apart = measure([&](std::span<float> data) {
      for (int64_t i = 0; i < kCalls; ++i) Check(world.AllReduce(part(data, i)));
    });
    const double together = measure([&](std::span<float> data) {
      braid::dist::Batch batch;
      for (int64_t i = 0; i < kCalls; ++i) batch.AllReduce(part(data, i));
      Check(world.Run(batch));
    });
    if (world.rank() == 0) {
      std::printf("%lld bytes: %lld calls %.1f us, in a batch %.1f us (%.2f)\n",
                  static_cast<long long>(bytes), static_cast<long long>(kCalls), apart, together,
                  apart / together);
    }
  }
}

absl::Status Measure(braid::dist::World& world, bool is_batch) {
  const DistLibrary library{
      .rank = world.rank(),
      .size = world.size(),
      .all_reduce = [&](std::span<float> data) { Check(world.AllReduce(data)); },
      .broadcast = [&](std::vector<int>& data) { Check(world.Broadcast(data, 0)); }};
  try {
    if (is_batch) {
      MeasureBatches(world);
      return absl::OkStatus();
    }
    MeasureSizes(world.rank(), [&](int64_t bytes) {
      const auto data = braid::dist::Alloc<float>(world, bytes / sizeof(float));
      Check(data.status());
      return MeasureAllReduce(library, *data);
    });
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
  return absl::OkStatus();
}

absl::Status Run(bool is_batch) {
  BRAID_ASSIGN_OR_RETURN(
      const std::unique_ptr<braid::dist::World> world,
      braid::dist::World::Init(
          {.transport = braid::EnvironmentVariable("BRAID_BENCH_TRANSPORT").value_or("")}));
  return world->Close(Measure(*world, is_batch));
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 && std::string_view(argv[1]) == "batch");
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
