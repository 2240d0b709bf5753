// What the programs of collective_bench.sh have in common: how a library's collective is timed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// What a collective works on: of an all_reduce and a broadcast of rank 0 the whole, in place; an
// all_gather makes the whole of the parts, and a reduce_scatter the parts of the wholes; an
// all_to_all makes the other whole.
struct CollectiveData {
  std::span<float> whole, part, other;
};

struct CollectiveLibrary {
  int rank = 0;
  int size = 1;
  std::function<std::span<float>(int64_t count)> allocate;
  std::function<void(std::span<float> data)> all_reduce;  // the sum, in place
  std::function<void(std::vector<int>& data)> broadcast;  // of rank 0
  // The one that is measured.
  std::function<void(const CollectiveData& data)> call;
};

inline void CheckElement(bool is_right) {
  if (!is_right) throw std::runtime_error("a collective gave a wrong element");
}

// The first and the last element of each rank's block.
inline void CheckBlocks(const CollectiveLibrary& library, std::span<const float> blocks) {
  const size_t each = blocks.size() / static_cast<size_t>(library.size);
  for (int rank = 0; rank < library.size; ++rank) {
    const auto block = blocks.subspan(static_cast<size_t>(rank) * each, each);
    const float expected = static_cast<float>(rank + 1);
    CheckElement(block.empty() || (block.front() == expected && block.back() == expected));
  }
}

inline void CheckCollective(const CollectiveLibrary& library, const std::string& collective,
                            const CollectiveData& data) {
  // Rank r gives r + 1.
  const auto sum = static_cast<float>(library.size * (library.size + 1) / 2);
  const auto all = [](std::span<const float> elements, float expected) {
    CheckElement(elements.empty() || (elements.front() == expected && elements.back() == expected));
  };
  if (collective == "all_reduce") return all(data.whole, sum);
  if (collective == "broadcast") return all(data.whole, 1);
  if (collective == "reduce_scatter") return all(data.part, sum);
  return CheckBlocks(library, collective == "all_gather" ? data.whole : data.other);
}

// The median seconds of a call on so many bytes of the whole, of those that fit into about a
// second. Before each call the elements are written, and the ranks wait for each other: else what
// is measured is how much longer another took to write. The results are checked.
inline double MeasureCollective(const CollectiveLibrary& library, const std::string& collective,
                                int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  const int64_t part = bytes / static_cast<int64_t>(sizeof(float)) / library.size;
  const bool is_one = collective == "all_reduce" || collective == "broadcast";
  const int64_t count = is_one ? bytes / static_cast<int64_t>(sizeof(float)) : part * library.size;
  CollectiveData data{.whole = library.allocate(count)};
  if (!is_one) data.part = library.allocate(part);
  if (collective == "all_to_all") data.other = library.allocate(count);
  const auto mine = static_cast<float>(library.rank + 1);
  std::vector<double> times;
  std::vector<int> goes_on = {1};
  float meeting[1] = {0};
  const auto began = Clock::now();
  while (goes_on[0] != 0) {
    for (int i = 0; i < 10; ++i) {
      std::ranges::fill(collective == "all_gather" ? data.part : data.whole, mine);
      // Twice: who slept in the first comes out of it later.
      library.all_reduce(meeting);
      library.all_reduce(meeting);
      const auto start = Clock::now();
      library.call(data);
      times.push_back(seconds(start));
      CheckCollective(library, collective, data);
    }
    goes_on[0] = seconds(began) < 1 ? 1 : 0;  // rank 0 decides for all
    library.broadcast(goes_on);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// Calls `measure` for each size; rank 0 prints a line: bytes, microseconds.
inline void MeasureSizes(int rank, const std::function<double(int64_t bytes)>& measure) {
  for (const int64_t bytes : {int64_t{4}, int64_t{4} << 10, int64_t{64} << 10, int64_t{1} << 20,
                              int64_t{16} << 20, int64_t{128} << 20}) {
    const double seconds = measure(bytes);
    if (rank == 0) std::printf("%lld %.1f\n", static_cast<long long>(bytes), seconds * 1e6);
  }
}
