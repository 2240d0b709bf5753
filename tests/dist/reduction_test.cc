// Calls that reduce by a function of the program's: on every kind, several types and numbers of
// ranks what a plain loop gives, and an error on all ranks where the function throws.
#include "api/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "runtime/array.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::Reduction;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A function on some type, and elements of it to try.
template <typename T>
struct OwnReduction {
  std::string name;
  std::function<T(const T&, const T&)> function;
  std::function<T(int rank, int64_t i)> element;
  std::function<bool(const T&, const T&)> same = [](const T& a, const T& b) { return a == b; };

  Reduction reduction() const { return Reduction::By<T>(name, function); }
  T Wanted(int ranks, int64_t i) const {
    T value = element(0, i);
    for (int rank = 1; rank < ranks; ++rank) value = function(value, element(rank, i));
    return value;
  }
};

template <typename T>
std::vector<T> ElementsOf(const OwnReduction<T>& own, int rank, int64_t count) {
  std::vector<T> elements;
  for (int64_t i = 0; i < count; ++i) elements.push_back(own.element(rank, i));
  return elements;
}

template <typename T>
absl::Status ExpectReduced(const OwnReduction<T>& own, const char* kind, const std::vector<T>& got,
                           int ranks, int64_t first = 0) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (own.same(got[i], own.Wanted(ranks, first + static_cast<int64_t>(i)))) continue;
    return absl::DataLossError(absl::StrFormat("%s by %s: element %d", kind, own.name, i));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckOwnReduction(dist::Group& group, const OwnReduction<T>& own, int64_t n) {
  const int rank = group.rank(), p = group.size();
  const std::vector<T> mine = ElementsOf(own, rank, n);
  std::vector<T> data = mine;
  BRAID_RETURN_IF_ERROR(group.AllReduce(data, own.reduction()));
  BRAID_RETURN_IF_ERROR(ExpectReduced(own, "all_reduce", data, p));

  const int root = static_cast<int>(n % p);
  data = mine;
  BRAID_RETURN_IF_ERROR(group.Reduce(data, root, own.reduction()));
  if (rank == root) {
    BRAID_RETURN_IF_ERROR(ExpectReduced(own, "reduce", data, p));
  } else if (!std::ranges::equal(data, mine, own.same)) {
    return absl::DataLossError("reduce changed what is not the root's");
  }

  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = r == 1 ? 0 : n + r;
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  std::vector<T> block(counts[rank], own.element(0, 0));
  BRAID_RETURN_IF_ERROR(
      group.ReduceScatter(ElementsOf(own, rank, whole), block, own.reduction(), counts));
  return ExpectReduced(own, "reduce_scatter", block, p, before);
}

struct Limits {
  float least, most;
  bool operator==(const Limits&) const = default;
};

// Two of them travel at a time.
struct Histogram {
  std::array<uint32_t, 25'000> bins;
  bool operator==(const Histogram&) const = default;
};

struct alignas(64) Vector {
  std::array<double, 3> at;
  bool operator==(const Vector&) const = default;
};

// Of no constructor without arguments, and three bytes, which divide no chunk.
struct Color {
  explicit Color(int value) : red(value), green(value / 2), blue(value / 3) {}
  uint8_t red, green, blue;
  bool operator==(const Color&) const = default;
};

absl::Status CheckOwnReductions(dist::Group& group) {
  for (const int64_t n : {0, 1, 777, 100'001}) {
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<Limits>(
        group,
        {"limits",
         [](const Limits& a, const Limits& b) {
           return Limits{std::min(a.least, b.least), std::max(a.most, b.most)};
         },
         [](int rank, int64_t i) {
           const auto x = static_cast<float>((rank * 31 + i * 7) % 101);
           return Limits{-x, x / 2};
         }},
        n));
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<Color>(
        group,
        {"lightest", [](const Color& a, const Color& b) { return a.red < b.red ? b : a; },
         [](int rank, int64_t i) { return Color(static_cast<int>((rank * 37 + i) % 200)); }},
        n));
  }
  for (const int64_t n : {0, 1, 500}) {
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<int64_t>(
        group,
        {"gcd", [](int64_t a, int64_t b) { return std::gcd(a, b); },
         [](int rank, int64_t i) { return (i % 10 + 1) * (rank + 2) * 6; }},
        n));
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<std::complex<double>>(
        group,
        {"rotate", std::multiplies<std::complex<double>>(),
         [](int rank, int64_t i) {
           return (rank + i) % 2 == 0 ? std::complex<double>(0, 1) : std::complex<double>(-1, 0);
         }},
        n));
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<BFloat16>(
        group,
        {"furthest",
         [](BFloat16 a, BFloat16 b) {
           return std::abs(static_cast<float>(a)) < std::abs(static_cast<float>(b)) ? b : a;
         },
         [](int rank, int64_t i) { return BFloat16(static_cast<float>((i % 9) * rank) - 9.5F); },
         [](BFloat16 a, BFloat16 b) { return a.bits == b.bits; }},
        n));
    BRAID_RETURN_IF_ERROR(CheckOwnReduction<Vector>(
        group,
        {"add",
         [](const Vector& a, const Vector& b) {
           return Vector{{a.at[0] + b.at[0], a.at[1] + b.at[1], a.at[2] + b.at[2]}};
         },
         [](int rank, int64_t i) {
           return Vector{{1.0 * rank, 1.0 * i, 0.5 * rank}};
         }},
        n));
  }
  return CheckOwnReduction<Histogram>(group,
                                      {"bins",
                                       [](const Histogram& a, const Histogram& b) {
                                         Histogram sum = a;
                                         for (size_t i = 0; i < sum.bins.size(); ++i)
                                           sum.bins[i] += b.bins[i];
                                         return sum;
                                       },
                                       [](int rank, int64_t i) {
                                         Histogram histogram;
                                         std::iota(histogram.bins.begin(), histogram.bins.end(),
                                                   1000 * rank + i);
                                         return histogram;
                                       }},
                                      7);
}

class OwnReductionTest : public RanksAndTransportTest {};

TEST_P(OwnReductionTest, IsWhatALoopOverTheRanksGives) {
  ExpectAllWell(RunWorld(CheckOwnReductions));
}

INSTANTIATE_TEST_SUITE_P(Ranks, OwnReductionTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::ValuesIn(kTransports)));

// bool, of which there is no span in a std::vector, and an Array.
TEST(ReductionTest, TakesSpansAndArrays) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::array<bool, 2> flags = {world.rank() == 1, true};
    const auto either =
        Reduction::By<bool>("either", [](const bool& a, const bool& b) { return a || b; });
    BRAID_RETURN_IF_ERROR(world.AllReduce(std::span(flags), either));
    Array array = Array::FromVector<float>({2}, {1.0F + static_cast<float>(world.rank()), 4});
    const auto product =
        Reduction::By<float>("product", [](const float& a, const float& b) { return a * b; });
    BRAID_RETURN_IF_ERROR(world.StartAllReduce(array, product).Wait());
    const auto values = array.data<float>();
    return flags[0] && flags[1] && values[0] == 6 && values[1] == 64
               ? absl::OkStatus()
               : absl::DataLossError("wrong values");
  }));
}

TEST(ReductionTest, WhatTheFunctionHoldsIsGoneWithTheCall) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<int> data = {world.rank()};
    std::weak_ptr<int> held;
    {
      const auto step = std::make_shared<int>(10);
      held = step;
      BRAID_RETURN_IF_ERROR(world.AllReduce(
          data, Reduction::By<int>("steps",
                                   [step](const int& a, const int& b) { return a + b + *step; })));
    }
    if (data[0] != 11) return absl::DataLossError("wrong sum");
    return held.expired() ? absl::OkStatus() : absl::InternalError("it is still there");
  }));
}

TEST(ReductionTest, WrongFunctionsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> data(3, 1);
    struct Large {
      char bytes[300'000];
    };
    std::vector<Large> large(1);
    const auto add = [](auto a, auto b) { return a + b; };
    const std::vector<std::pair<absl::Status, std::string>> mistakes = {
        {world.AllReduce(data, Reduction::By<double>("add", add)),
         "'add' is a function on f64 (8 bytes each), and the elements are of f32 (4)"},
        {world.Reduce(data, 0, Reduction::By<float>("", add)), "the function has no name"},
        {world.AllReduce(
             large, Reduction::By<Large>("first", [](const Large& a, const Large&) { return a; })),
         "an element has 300000 bytes; 'first' can have up to 262144"},
    };
    for (const auto& [status, words] : mistakes) {
      if (!absl::IsInvalidArgument(status) || status.message().find(words) == std::string::npos ||
          status.message().find("reduction_test.cc:") == std::string::npos) {
        return absl::InternalError(absl::StrFormat("%s; not '%s'", status.ToString(), words));
      }
    }
    BRAID_RETURN_IF_ERROR(world.AllReduce(data, Reduction::By<float>("add", add)));
    return data[2] == 2 ? absl::OkStatus() : absl::DataLossError("wrong sum");
  }));
}

// A rank whose own result is whole may be done before it hears of it.
void ExpectThrownOnAll(int ranks, const std::function<int(int rank, int a, int b)>& function,
                       const std::string& words) {
  const WorldEnd end = RunWorld(ranks, [&](dist::World& world) -> absl::Status {
    std::vector<int> data(100'000, 1);
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    const auto throwing = Reduction::By<int>(
        "throwing", [&](const int& a, const int& b) { return function(world.rank(), a, b); });
    data.assign(100'000, 1);
    const absl::Status status = world.AllReduce(data, throwing);
    if (!status.ok()) return status;
    if (!std::ranges::all_of(data, [&](int value) { return value == ranks; })) {
      return absl::DataLossError("a wrong number");
    }
    return world.Barrier();
  });
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(absl::IsInternal(end.programs[rank])) << end.programs[rank];
    EXPECT_THAT(std::string(end.programs[rank].message()),
                AllOf(HasSubstr("the world: call 1: the function of all_reduce of 100000 i32, by "
                                "'throwing' (reduction_test.cc:"),
                      HasSubstr(words)));
    EXPECT_EQ(end.programs[rank], end.programs[0]);
    EXPECT_EQ(end.worlds[rank], end.programs[0]);
  }
  EXPECT_LT(end.wall, BRAID_SLACK * absl::Seconds(10));
}

TEST(ReductionTest, AnExceptionIsTheSameErrorOnAllRanks) {
  for (const int ranks : {2, 4}) {
    ExpectThrownOnAll(
        ranks,
        [](int rank, int a, int b) {
          if (rank == 1) throw std::out_of_range("7 of 3");
          return a + b;
        },
        "threw std::out_of_range: 7 of 3");
    ExpectThrownOnAll(
        ranks, [](int, int a, int) -> int { throw a; }, "threw int");
  }
}

// It would wait for itself.
TEST(ReductionTest, CallsInTheFunctionAreErrors) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    absl::Status inner, started;
    std::vector<int> data = {1, 1, 1}, other = {1};
    BRAID_RETURN_IF_ERROR(
        world.AllReduce(data, Reduction::By<int>("calling", [&](const int& a, const int& b) {
                          inner = world.Barrier();
                          started = world.StartAllReduce(other).Wait();
                          return a + b;
                        })));
    for (const absl::Status& status : {inner, started}) {
      if (!absl::IsFailedPrecondition(status)) return absl::InternalError(status.ToString());
    }
    return data == std::vector<int>(3, 3) ? absl::OkStatus() : absl::DataLossError("wrong sum");
  }));
}

}  // namespace
}  // namespace braid
