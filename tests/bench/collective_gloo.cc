// What collective_bench measures of all_reduce, of Gloo, which torch.distributed uses on CPUs: the
// faster one of its two algorithms at each size. Its ranks meet at the files of an empty folder.
// Built by collective_bench.sh.
//
//   for rank in 0 1; do collective_gloo FOLDER $rank 2 & done; wait
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <memory>
#include <span>
#include <vector>

#include "tests/bench/collective_measure.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

void Run(const char* folder, int rank, int size) {
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  gloo::rendezvous::FileStore store(folder);
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  Algorithm algorithm = Algorithm::RING;
  std::deque<std::vector<float>> memory;
  const auto all_reduce = [&](std::span<float> data) {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(algorithm);
    options.setOutput(data.data(), data.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
  const CollectiveLibrary library{
      .rank = rank,
      .size = size,
      .allocate =
          [&](int64_t count) { return std::span(memory.emplace_back(static_cast<size_t>(count))); },
      .all_reduce = all_reduce,
      .broadcast =
          [&](std::vector<int>& data) {
            gloo::BroadcastOptions options(context);
            options.setOutput(data.data(), data.size());
            options.setRoot(0);
            gloo::broadcast(options);
          },
      .call = [&](const CollectiveData& data) { all_reduce(data.whole); }};
  MeasureSizes(rank, [&](int64_t bytes) {
    algorithm = Algorithm::RING;
    const double ring = MeasureCollective(library, "all_reduce", bytes);
    algorithm = Algorithm::BCUBE;
    return std::min(ring, MeasureCollective(library, "all_reduce", bytes));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: collective_gloo FOLDER RANK SIZE\n";
    return 2;
  }
  try {
    Run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
