// How long a collective of a process group takes: one process a rank, as a launcher starts them.
// Rank 0 prints a line for each size: bytes, and the median microseconds of a call.
//
//   build/release/bin/braid launch --nproc_per_node=2 -- build/release/bin/collective_bench
//   [COLLECTIVE]
//
// COLLECTIVE is all_reduce, broadcast, all_gather, reduce_scatter or all_to_all; or `batch`: how
// long 100 all_reduces take, one by one and in a batch. BRAID_BENCH_TRANSPORT names the transport,
// else it is tcp.
#include <braid/dist.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/bench/collective_measure.h"

namespace {

using braid::dist::World;

void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

void Call(World& world, const std::string& collective, const CollectiveData& data) {
  if (collective == "all_reduce") return Check(world.AllReduce(data.whole));
  if (collective == "broadcast") return Check(world.Broadcast(data.whole, 0));
  if (collective == "all_gather") return Check(world.AllGather(data.part, data.whole));
  if (collective == "reduce_scatter") return Check(world.ReduceScatter(data.whole, data.part));
  if (collective == "all_to_all") return Check(world.AllToAll(data.whole, data.other));
  throw std::runtime_error("there is no collective '" + collective + "'");
}

void MeasureBatches(World& world, const CollectiveLibrary& library) {
  for (const int64_t bytes : {int64_t{4}, int64_t{1} << 10, int64_t{8} << 10, int64_t{32} << 10,
                              int64_t{64} << 10, int64_t{256} << 10}) {
    constexpr int64_t kCalls = 100;
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    const auto measure = [&](const std::function<void(std::span<float> data)>& sum) {
      CollectiveLibrary calls = library;
      calls.call = [&sum](const CollectiveData& data) { sum(data.whole); };
      return 1e6 * MeasureCollective(calls, "all_reduce", kCalls * bytes);
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

absl::Status Measure(World& world, const std::string& collective) {
  std::deque<braid::dist::Elements<float>> memory;
  const CollectiveLibrary library{
      .rank = world.rank(),
      .size = world.size(),
      .allocate =
          [&](int64_t count) {
            auto elements = braid::dist::Alloc<float>(world, count);
            Check(elements.status());
            memory.push_back(*std::move(elements));
            return std::span<float>(memory.back().begin(), memory.back().end());
          },
      .all_reduce = [&](std::span<float> data) { Check(world.AllReduce(data)); },
      .broadcast = [&](std::vector<int>& data) { Check(world.Broadcast(data, 0)); },
      .call = [&](const CollectiveData& data) { Call(world, collective, data); }};
  try {
    if (collective == "batch") {
      MeasureBatches(world, library);
      return absl::OkStatus();
    }
    MeasureSizes(world.rank(),
                 [&](int64_t bytes) { return MeasureCollective(library, collective, bytes); });
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& collective) {
  BRAID_ASSIGN_OR_RETURN(
      const std::unique_ptr<World> world,
      World::Init(
          {.transport = braid::EnvironmentVariable("BRAID_BENCH_TRANSPORT").value_or("tcp")}));
  return world->Close(Measure(*world, collective));
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "all_reduce");
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
