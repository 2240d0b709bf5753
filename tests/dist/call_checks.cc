#include "tests/dist/call_checks.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/half.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using dist::ReduceOp;

// Of a bool, too, which a std::vector would pack.
template <typename T>
class Elements {
 public:
  explicit Elements(int64_t count) : values_(new T[count]()), count_(count) {}
  std::span<T> span() const { return {values_.get(), static_cast<size_t>(count_)}; }
  T& operator[](int64_t i) const { return values_[i]; }

 private:
  std::unique_ptr<T[]> values_;
  int64_t count_;
};

// Small integers, of which every type adds and multiplies as many as there are ranks without
// rounding.
int64_t ValueOf(int rank, int64_t i) { return 1 + (rank * 7 + i * 3 + i / 5) % 2; }

template <typename T>
T Cast(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) return value != 0;
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return a.bits == b.bits;
  else
    return a == b;
}

template <typename T>
T Reference(ReduceOp op, int ranks, int64_t i) {
  int64_t value = ValueOf(0, i);
  if constexpr (std::is_same_v<T, bool>) value = value > 1;
  for (int rank = 1; rank < ranks; ++rank) {
    int64_t other = ValueOf(rank, i);
    if constexpr (std::is_same_v<T, bool>) other = other > 1;
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        value += other;
        break;
      case ReduceOp::kProduct:
        value *= other;
        break;
      case ReduceOp::kMin:
        value = std::min(value, other);
        break;
      case ReduceOp::kMax:
        value = std::max(value, other);
        break;
      case ReduceOp::kAnd:
        value &= other;
        break;
      case ReduceOp::kOr:
        value |= other;
        break;
      case ReduceOp::kXor:
        value ^= other;
        break;
    }
  }
  if (op == ReduceOp::kAverage) {
    if constexpr (std::is_same_v<T, double>) return static_cast<double>(value) / ranks;
    if constexpr (std::is_same_v<T, std::complex<double>>)
      return static_cast<double>(value) / ranks;
    const float quotient = static_cast<float>(value) / static_cast<float>(ranks);
    if constexpr (!std::is_integral_v<T>) return T(quotient);
  }
  return Cast<T>(value);
}

// This rank's input; bools are true where the value is 2.
template <typename T>
Elements<T> Input(int rank, int64_t count, int64_t first = 0) {
  Elements<T> input(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = ValueOf(rank, first + i);
    input[i] = std::is_same_v<T, bool> ? Cast<T>(value > 1) : Cast<T>(value);
  }
  return input;
}

template <typename T>
absl::Status Expect(const std::string& what, const Elements<T>& got, int64_t at, const T& wanted) {
  if (Same(got[at], wanted)) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: element %d is wrong", what, at));
}

template <typename T>
absl::Status CheckComputing(dist::Group& group, ReduceOp op, int64_t n) {
  const int rank = group.rank(), p = group.size();
  const std::string what = absl::StrFormat("%s, %d elements", dist::NameOf(op), n);
  Elements<T> data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.AllReduce(data.span(), op));
  for (int64_t i = 0; i < n; ++i) {
    BRAID_RETURN_IF_ERROR(Expect("all_reduce " + what, data, i, Reference<T>(op, p, i)));
  }
  const int root = static_cast<int>(n % p);
  data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.Reduce(data.span(), root, op));
  const Elements<T> own = Input<T>(rank, n);
  for (int64_t i = 0; i < n; ++i) {
    BRAID_RETURN_IF_ERROR(
        Expect("reduce " + what, data, i, rank == root ? Reference<T>(op, p, i) : own[i]));
  }
  // Uneven blocks, one of them empty.
  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = r == 1 ? 0 : n + r;
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  const Elements<T> input = Input<T>(rank, whole);
  Elements<T> output(counts[rank]);
  BRAID_RETURN_IF_ERROR(group.ReduceScatter(input.span(), output.span(), op, counts));
  for (int64_t i = 0; i < counts[rank]; ++i) {
    BRAID_RETURN_IF_ERROR(
        Expect("reduce_scatter " + what, output, i, Reference<T>(op, p, before + i)));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckMoving(dist::Group& group, int64_t n, bool is_even) {
  const int rank = group.rank(), p = group.size();
  const int root = static_cast<int>(n % p);
  const auto count_of = [&](int r) { return is_even ? n : r == 1 ? 0 : n + r; };
  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = count_of(r);
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const std::vector<int64_t> given = is_even ? std::vector<int64_t>() : counts;
  const int64_t own = counts[rank];

  Elements<T> data = Input<T>(rank, n);
  BRAID_RETURN_IF_ERROR(group.Broadcast(data.span(), root));
  const Elements<T> of_root = Input<T>(root, n);
  for (int64_t i = 0; i < n; ++i) BRAID_RETURN_IF_ERROR(Expect("broadcast", data, i, of_root[i]));

  const Elements<T> input = Input<T>(rank, own);
  Elements<T> all(whole);
  BRAID_RETURN_IF_ERROR(group.AllGather(input.span(), all.span(), given));
  const auto check_all = [&](const std::string& what) -> absl::Status {
    int64_t at = 0;
    for (int r = 0; r < p; ++r) {
      const Elements<T> theirs = Input<T>(r, counts[r]);
      for (int64_t i = 0; i < counts[r]; ++i)
        BRAID_RETURN_IF_ERROR(Expect(what, all, at++, theirs[i]));
    }
    return absl::OkStatus();
  };
  BRAID_RETURN_IF_ERROR(check_all("all_gather"));
  all = Elements<T>(rank == root ? whole : 0);
  BRAID_RETURN_IF_ERROR(group.Gather(input.span(), all.span(), root, given));
  if (rank == root) BRAID_RETURN_IF_ERROR(check_all("gather"));

  const Elements<T> blocks = Input<T>(root, rank == root ? whole : 0);
  Elements<T> part(own);
  BRAID_RETURN_IF_ERROR(group.Scatter(blocks.span(), part.span(), root, given));
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  const Elements<T> wanted = Input<T>(root, own, before);
  for (int64_t i = 0; i < own; ++i) BRAID_RETURN_IF_ERROR(Expect("scatter", part, i, wanted[i]));

  // Rank r sends rank s count_of((r + s) % p) elements of its own.
  std::vector<int64_t> sends(p);
  for (int s = 0; s < p; ++s) sends[s] = count_of((rank + s) % p);
  const Elements<T> mine = Input<T>(rank, whole);
  Elements<T> received(whole);
  BRAID_RETURN_IF_ERROR(group.AllToAll(mine.span(), received.span(),
                                       is_even ? std::vector<int64_t>() : sends,
                                       is_even ? std::vector<int64_t>() : sends));
  int64_t at = 0;
  for (int r = 0; r < p; ++r) {
    int64_t first = 0;
    for (int s = 0; s < rank; ++s) first += count_of((r + s) % p);
    const Elements<T> theirs = Input<T>(r, sends[r], first);
    for (int64_t i = 0; i < sends[r]; ++i) {
      BRAID_RETURN_IF_ERROR(Expect("all_to_all", received, at++, theirs[i]));
    }
  }
  return group.Barrier();
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct,
                             ReduceOp::kMin, ReduceOp::kMax,     ReduceOp::kAnd,
                             ReduceOp::kOr,  ReduceOp::kXor};

template <typename T>
bool IsDefined(ReduceOp op) {
  return dist::FindReduction(dist::ElementTypeOf<T>(), op) != nullptr;
}

template <typename T>
absl::Status CheckType(dist::Group& group, int turn) {
  constexpr int64_t kSizes[] = {0, 1, 777};
  for (const ReduceOp op : kOps) {
    if (!IsDefined<T>(op)) continue;
    BRAID_RETURN_IF_ERROR(CheckComputing<T>(group, op, kSizes[turn++ % 3]));
  }
  for (const bool is_even : {true, false}) {
    BRAID_RETURN_IF_ERROR(CheckMoving<T>(group, kSizes[turn++ % 3], is_even));
    BRAID_RETURN_IF_ERROR(CheckMoving<T>(group, kSizes[turn++ % 3], is_even));
  }
  return absl::OkStatus();
}

// Calls of 1 MiB, of one operation that the type has.
template <typename T>
absl::Status CheckMuch(dist::Group& group, int type) {
  constexpr int64_t kMuch = (1 << 20) / static_cast<int64_t>(sizeof(T));
  const ReduceOp op = kOps[static_cast<size_t>(type) % std::size(kOps)];
  BRAID_RETURN_IF_ERROR(CheckComputing<T>(group, IsDefined<T>(op) ? op : ReduceOp::kSum, kMuch));
  return CheckMoving<T>(group, kMuch, /*is_even=*/type % 2 == 0);
}

// f(T()) for the type of a number below kNumTypes.
constexpr int kNumTypes = 15;
template <typename F>
absl::Status WithType(int number, F f) {
  switch (number) {
    case 0:
      return f(int8_t());
    case 1:
      return f(uint8_t());
    case 2:
      return f(int16_t());
    case 3:
      return f(uint16_t());
    case 4:
      return f(int32_t());
    case 5:
      return f(uint32_t());
    case 6:
      return f(int64_t());
    case 7:
      return f(uint64_t());
    case 8:
      return f(Float16());
    case 9:
      return f(BFloat16());
    case 10:
      return f(float());
    case 11:
      return f(double());
    case 12:
      return f(std::complex<float>());
    case 13:
      return f(std::complex<double>());
    default:
      return f(bool());
  }
}

}  // namespace

absl::Status CheckTypes(dist::Group& group) {
  for (int type = 0; type < kNumTypes; ++type) {
    // Worlds of 1, 2, 3, 4 and 8 ranks have much of three types each.
    const bool has_much = type % 5 == group.size() % 8;
    BRAID_RETURN_IF_ERROR(WithType(type, [&](auto value) -> absl::Status {
      BRAID_RETURN_IF_ERROR(CheckType<decltype(value)>(group, type % 3));
      return has_much ? CheckMuch<decltype(value)>(group, type) : absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status CheckDrawnCalls(dist::Group& group, uint64_t seed, int calls) {
  // The last one takes many turns of the slots.
  constexpr int64_t kSizes[] = {0, 1, 7, 777, 5'000, 280'000};
  SeededChoice choice(seed);
  for (int call = 0; call < calls; ++call) {
    // Eight ranks would need hundreds of MiB.
    const size_t sizes = std::size(kSizes) - (group.size() > 4 ? 1 : 0);
    const int64_t size = kSizes[choice.Below(sizes)];
    const ReduceOp op = kOps[choice.Below(std::size(kOps))];
    const bool moves = choice.Below(3) == 0, is_even = choice.Below(2) == 0;
    BRAID_RETURN_IF_ERROR(
        WithType(static_cast<int>(choice.Below(kNumTypes)), [&](auto value) -> absl::Status {
          using T = decltype(value);
          if (moves || !IsDefined<T>(op)) return CheckMoving<T>(group, size, is_even);
          return CheckComputing<T>(group, op, size);
        }));
  }
  return absl::OkStatus();
}

absl::Status CheckAHundredCalls(dist::World& world) {
  const int ranks = world.size();
  const auto sum_of = [ranks](int i) { return ranks * i + ranks * (ranks - 1) / 2; };
  std::vector<std::vector<int32_t>> data;
  for (int i = 0; i < 100; ++i) data.emplace_back(1000, i + world.rank());
  std::vector<dist::Work> works;
  for (std::vector<int32_t>& each : data) works.push_back(world.StartAllReduce(each));
  for (dist::Work& work : works) BRAID_RETURN_IF_ERROR(work.Wait());
  for (int i = 0; i < 100; ++i) {
    if (data[i][999] != sum_of(i)) return absl::DataLossError(absl::StrFormat("call %d", i));
  }
  return absl::OkStatus();
}

absl::Status CheckGroupsOfFour(dist::World& world) {
  const int rank = world.rank();
  BRAID_ASSIGN_OR_RETURN(
      const std::unique_ptr<dist::Group> half,
      world.NewGroup(rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3}));
  if (half->size() != 2 || half->rank() != (rank == 0 || rank == 3)) {
    return absl::DataLossError(absl::StrFormat("rank %d is %d in its half", rank, half->rank()));
  }
  std::vector<int64_t> all = {rank}, some = {rank};
  dist::Work of_all = world.StartAllReduce(all);
  BRAID_RETURN_IF_ERROR(half->AllReduce(some));
  BRAID_RETURN_IF_ERROR(of_all.Wait());
  if (all[0] != 6 || some[0] != (rank % 2 == 0 ? 2 : 4)) return absl::DataLossError("mixed up");
  // The same list again is another group.
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<dist::Group> again, world.NewGroup({3, 2, 1, 0}));
  std::vector<int> order(4);
  BRAID_RETURN_IF_ERROR(again->AllGather(std::vector<int>{rank}, order));
  return order == std::vector<int>{3, 2, 1, 0} ? absl::OkStatus() : absl::DataLossError("order");
}

}  // namespace braid
