// What dist_bench measures, of Gloo, which torch.distributed uses on CPUs: the faster one of its
// two algorithms at each size. Its ranks meet at the files of an empty folder.
//
//   for rank in 0 1; do build/release/bin/dist_gloo FOLDER $rank 2 & done; wait
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_format.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr double kSecondsASize = 1;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// Of a call, the median.
double Measure(const std::shared_ptr<gloo::Context>& context, int64_t bytes, Algorithm algorithm) {
  std::vector<float> data(bytes / sizeof(float), 1);
  std::vector<double> times;
  std::vector<int> goes_on = {1};
  const auto began = Clock::now();
  while (goes_on[0] != 0) {
    for (int i = 0; i < 10; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      const auto start = Clock::now();
      gloo::AllreduceOptions options(context);
      options.setAlgorithm(algorithm);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
      times.push_back(Seconds(start));
      if (data.back() != static_cast<float>(context->size)) {
        throw std::runtime_error("an all_reduce gave a wrong sum");
      }
    }
    goes_on[0] = Seconds(began) < kSecondsASize ? 1 : 0;  // rank 0 decides for all
    gloo::BroadcastOptions decision(context);
    decision.setOutput(goes_on.data(), 1);
    decision.setRoot(0);
    gloo::broadcast(decision);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void Run(const char* folder, int rank, int size) {
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  gloo::rendezvous::FileStore store(folder);
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  for (int64_t bytes = 4; bytes <= kMostBytes; bytes *= 8) {
    const double seconds = std::min(Measure(context, bytes, Algorithm::RING),
                                    Measure(context, bytes, Algorithm::BCUBE));
    if (rank == 0) {
      std::cout << absl::StrFormat("%10d bytes %10.1f us %8.2f GB/s\n", bytes, seconds * 1e6,
                                   static_cast<double>(bytes) / seconds / 1e9);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: dist_gloo FOLDER RANK SIZE\n";
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
