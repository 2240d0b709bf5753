// What the programs of dist_bench.sh have in common: how a library's all_reduce is timed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

struct DistLibrary {
  int rank = 0;
  int size = 1;
  std::function<void(std::span<float> data)> all_reduce;  // the sum, in place
  std::function<void(std::vector<int>& data)> broadcast;  // of rank 0
};

// The median seconds of a call on these elements, of those that fit into about a second. Before
// each call the elements are written, and the ranks wait for each other: else what is measured is
// how much longer the other took to write. The results are checked.
inline double MeasureAllReduce(const DistLibrary& library, std::span<float> data) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  std::vector<double> times;
  std::vector<int> goes_on = {1};
  float meeting[1] = {0};
  const auto began = Clock::now();
  while (goes_on[0] != 0) {
    for (int i = 0; i < 10; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      // Twice: who slept in the first comes out of it later.
      library.all_reduce(meeting);
      library.all_reduce(meeting);
      const auto start = Clock::now();
      library.all_reduce(data);
      times.push_back(seconds(start));
      const auto sum = static_cast<float>(library.size);
      if (data.front() != sum || data.back() != sum) {
        throw std::runtime_error("an all_reduce gave a wrong sum");
      }
    }
    goes_on[0] = seconds(began) < 1 ? 1 : 0;  // rank 0 decides for all
    library.broadcast(goes_on);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// The same, on memory as any program has it.
inline double MeasureAllReduce(const DistLibrary& library, int64_t bytes) {
  std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float));
  return MeasureAllReduce(library, data);
}

// Calls `measure` for each size; rank 0 prints a line: bytes, microseconds.
inline void MeasureSizes(int rank, const std::function<double(int64_t bytes)>& measure) {
  for (const int64_t bytes : {int64_t{4}, int64_t{512}, int64_t{4} << 10, int64_t{64} << 10,
                              int64_t{1} << 20, int64_t{16} << 20, int64_t{128} << 20}) {
    const double seconds = measure(bytes);
    if (rank == 0) std::printf("%lld %.1f\n", static_cast<long long>(bytes), seconds * 1e6);
  }
}
