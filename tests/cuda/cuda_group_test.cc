// Collectives that cards do among themselves, against their definition, bit for bit: on cards that
// see each other's memory, on cards that do not, and on devices that share a card. Without
// BRAID_TEST_DEVICE the cards are those of module_on_host.cc.
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/half.h"
#include "runtime/base/reactor.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_kind.h"
#include "runtime/dtype_traits.h"
#include "runtime/kernels/kernel.h"

namespace braid {
namespace {

constexpr int kPieces = 3;
constexpr uint64_t kSpan = uint64_t{48} << 20;  // of a device's arena, for an input or an output

bool AreReal() { return std::getenv("BRAID_TEST_DEVICE") != nullptr; }

// Devices of one node with their group.
class Cards {
 public:
  // `card`: as CudaOptions::card.
  Cards(int devices, int card) {
    const auto options = std::make_shared<cuda::CudaOptions>();
    options->card = card;
    if (!AreReal()) {
      options->module =
          std::filesystem::read_symlink("/proc/self/exe").parent_path() / "braid_cuda_on_host.so";
    }
    const DeviceKinds::Kind kind = cuda::CudaKind(options);
    status_ = kind.open(devices);
    if (!status_.ok()) return;
    for (int i = 0; i < devices; ++i) {
      devices_.push_back(kind.make({.index = i,
                                    .devices = devices,
                                    .environment = environment_.get(),
                                    .cpu_kernels = &cpu_kernels_}));
    }
    group_ = kind.make_group(devices_);
    for (const auto& device : devices_) {
      status_.Update(device->GrowArena(MemoryKind::kOwn, 2 * kSpan));
    }
  }

  const absl::Status& status() const { return status_; }
  const Devices& devices() const { return devices_; }
  DeviceGroup& group() { return *group_; }

  void Wait(int device) {
    const std::unique_ptr<Event> reached = environment_->MakeEvent();
    absl::Status status;
    devices_[device]->stream(StreamKind::kCollective).Notify([&](const absl::Status& at) {
      status = at;
      reached->Set();
    });
    ASSERT_TRUE(environment_->Await(*reached, 60 * kSecond).ok());
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  const KernelRegistry cpu_kernels_;
  absl::Status status_;
  Devices devices_;
  std::unique_ptr<DeviceGroup> group_;
};

struct Case {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int> devices;  // by rank
  // As in the spec; of an all_to_all those of each rank, one after the other.
  std::vector<int64_t> counts;
  DType dtype = DType::kF32;
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;
  bool in_place = false;
  int64_t shift = 0;  // elements by which inputs and outputs begin late
};

using Bytes = std::vector<std::byte>;

template <class T>
Bytes RandomBytes(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(static_cast<size_t>(n) * sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    T value;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random() % 100);
    } else {
      value = static_cast<T>(std::uniform_real_distribution<float>(-1, 1)(random));
    }
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// In rank order; what is narrow is summed in f32 and rounded once.
template <class T>
Bytes ReducedPart(const std::vector<Bytes>& inputs, Sbp::Kind kind, int64_t first, int64_t n) {
  constexpr bool kIsNarrow = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
  using C = std::conditional_t<kIsNarrow, float, T>;
  const auto at = [&](size_t rank, int64_t i) {
    T value;
    std::memcpy(&value, inputs[rank].data() + static_cast<size_t>(first + i) * sizeof(T),
                sizeof(T));
    return static_cast<C>(value);
  };
  Bytes result(static_cast<size_t>(n) * sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    C all = at(0, i);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const C more = at(rank, i);
      all = kind == Sbp::Kind::kPartialSum   ? static_cast<C>(all + more)
            : kind == Sbp::Kind::kPartialMax ? std::max(all, more)
                                             : std::min(all, more);
    }
    const T rounded = static_cast<T>(all);
    std::memcpy(result.data() + static_cast<size_t>(i) * sizeof(T), &rounded, sizeof(T));
  }
  return result;
}

int64_t Sum(const std::vector<int64_t>& counts, size_t before) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(before), int64_t{0});
}

class CollectiveOfCards {
 public:
  CollectiveOfCards(Cards& cards, Case c, uint64_t id) : cards_(cards), case_(std::move(c)) {
    for (int rank = 0; rank < members(); ++rank) {
      specs_.push_back(SpecOf(id, rank));
      absl::StatusOr<std::unique_ptr<DeviceCollective>> end = cards_.group().Create(specs_.back());
      CHECK(end.ok()) << end.status();
      ends_.push_back(*std::move(end));
    }
  }

  // Each member on a thread of its own, piece after piece with other numbers.
  void RunAndCheck() {
    for (int piece = 0; piece < kPieces; ++piece) {
      VisitDType(case_.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        inputs_.clear();
        for (int rank = 0; rank < members(); ++rank) {
          inputs_.push_back(RandomBytes<T>(InputElements(rank), 100 * piece + rank));
        }
      });
      outputs_.assign(members(), {});
      std::barrier meeting(members());
      std::vector<std::thread> threads;
      for (int rank = 0; rank < members(); ++rank) {
        threads.emplace_back([&, rank] { RunMember(rank, meeting); });
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < members(); ++rank) {
        const Bytes expected = Expected(rank);
        ASSERT_EQ(outputs_[rank].size(), expected.size());
        ASSERT_TRUE(outputs_[rank] == expected) << "rank " << rank << ", piece " << piece;
      }
    }
  }

 private:
  int members() const { return static_cast<int>(case_.devices.size()); }

  DeviceCollectiveSpec SpecOf(uint64_t id, int rank) const {
    DeviceCollectiveSpec spec{.id = id,
                              .kind = case_.kind,
                              .devices = case_.devices,
                              .my_rank = rank,
                              .dtype = case_.dtype,
                              .reduction = case_.reduction,
                              .counts = case_.counts,
                              .receives = {},
                              .root = members() - 1};
    if (case_.kind == CollectiveKind::kAllToAll) {
      spec.counts.clear();
      for (int other = 0; other < members(); ++other) {
        spec.counts.push_back(case_.counts[rank * members() + other]);
        spec.receives.push_back(case_.counts[other * members() + rank]);
      }
    }
    return spec;
  }

  int64_t InputElements(int rank) const {
    const std::vector<int64_t>& counts = specs_[rank].counts;
    return case_.kind == CollectiveKind::kAllGather ? counts[rank] : Sum(counts, counts.size());
  }
  int64_t OutputElements(int rank) const {
    const DeviceCollectiveSpec& spec = specs_[rank];
    if (case_.kind == CollectiveKind::kReduceScatter) return spec.counts[rank];
    if (case_.kind == CollectiveKind::kAllToAll) return Sum(spec.receives, spec.receives.size());
    return Sum(spec.counts, spec.counts.size());
  }

  void RunMember(int rank, std::barrier<>& meeting) {
    Device& device = *cards_.devices()[case_.devices[rank]];
    Stream& stream = device.stream(StreamKind::kCollective);
    const auto size = static_cast<int64_t>(SizeOf(case_.dtype));
    std::byte* const begin = device.arena(MemoryKind::kOwn).data() + case_.shift * size;
    std::byte* input = begin;
    std::byte* output = case_.in_place ? begin : begin + kSpan;
    const bool gathers = case_.kind == CollectiveKind::kAllGather;
    if (case_.in_place && (gathers || case_.kind == CollectiveKind::kReduceScatter)) {
      (gathers ? input : output) += Sum(specs_[rank].counts, rank) * size;
    }
    stream.Copy(input, inputs_[rank].data(), inputs_[rank].size());
    ends_[rank]->Come(input, output);
    meeting.arrive_and_wait();
    ends_[rank]->Queue();
    outputs_[rank].resize(static_cast<size_t>(OutputElements(rank) * size));
    stream.Copy(outputs_[rank].data(), output, outputs_[rank].size());
    cards_.Wait(case_.devices[rank]);
  }

  Bytes Expected(int rank) const {
    const DeviceCollectiveSpec& spec = specs_[rank];
    const auto size = static_cast<int64_t>(SizeOf(case_.dtype));
    Bytes expected;
    const auto append = [&](const Bytes& from, int64_t first, int64_t n) {
      expected.insert(expected.end(), from.begin() + first * size,
                      from.begin() + (first + n) * size);
    };
    switch (case_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduceScatter:
        VisitDType(case_.dtype, [&](auto type) {
          using T = typename decltype(type)::type;
          const bool is_whole = case_.kind == CollectiveKind::kAllReduce;
          expected = ReducedPart<T>(inputs_, case_.reduction, is_whole ? 0 : Sum(spec.counts, rank),
                                    OutputElements(rank));
        });
        break;
      case CollectiveKind::kAllGather:
        for (int other = 0; other < members(); ++other) {
          append(inputs_[other], 0, spec.counts[other]);
        }
        break;
      case CollectiveKind::kAllToAll:
        for (int other = 0; other < members(); ++other) {
          append(inputs_[other], Sum(specs_[other].counts, rank), spec.receives[other]);
        }
        break;
      case CollectiveKind::kBroadcast:
        append(inputs_[spec.root], 0, spec.counts[0]);
        break;
    }
    return expected;
  }

  Cards& cards_;
  const Case case_;
  std::vector<DeviceCollectiveSpec> specs_;
  std::vector<std::unique_ptr<DeviceCollective>> ends_;
  std::vector<Bytes> inputs_, outputs_;  // of the piece
};

// `n` elements a block, or about that.
std::vector<int64_t> CountsOf(CollectiveKind kind, int64_t members, int64_t n, bool uneven) {
  if (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast) {
    return {n * members + (uneven ? 1 : 0)};
  }
  std::vector<int64_t> counts(
      static_cast<size_t>(kind == CollectiveKind::kAllToAll ? members * members : members), n);
  for (size_t i = 0; uneven && i < counts.size(); ++i) {
    counts[i] = i % 3 == 1 ? 0 : n + static_cast<int64_t>(i);
  }
  return counts;
}

void CheckAll(Cards& cards, const std::vector<int>& devices) {
  ASSERT_TRUE(cards.status().ok()) << cards.status();
  uint64_t id = 1;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{700}, int64_t{1} << 16}) {
      for (const bool in_place : {false, true}) {
        for (const int64_t shift : {0, 1}) {
          if (in_place && kind == CollectiveKind::kAllToAll) continue;
          Case c{.kind = kind,
                 .devices = devices,
                 .counts = CountsOf(kind, static_cast<int64_t>(devices.size()), n, shift == 1),
                 .in_place = in_place,
                 .shift = shift};
          SCOPED_TRACE(std::string(CollectiveKindName(kind)) + ", " + std::to_string(n) +
                       (in_place ? ", in place" : "") + (shift == 1 ? ", uneven" : ""));
          CollectiveOfCards(cards, std::move(c), id++).RunAndCheck();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Those of the module on the host, or of the machine as far as it has them.
std::unique_ptr<Cards> CardsOrNull(int devices, int card) {
  setenv("BRAID_FAKE_CARDS", "4", 1);
  auto cards = std::make_unique<Cards>(devices, card);
  return cards->status().ok() || !AreReal() ? std::move(cards) : nullptr;
}

TEST(CudaGroupTest, CardsThatSeeEachOther) {
  for (const int devices : {2, 4}) {
    const std::unique_ptr<Cards> cards = CardsOrNull(devices, -1);
    if (cards == nullptr) GTEST_SKIP() << "there are not " << devices << " cards";
    std::vector<int> all(devices);
    std::iota(all.begin(), all.end(), 0);
    CheckAll(*cards, all);
  }
}

TEST(CudaGroupTest, CardsThatDoNotSeeEachOther) {
  if (AreReal()) GTEST_SKIP() << "real cards see each other or do not";
  setenv("BRAID_FAKE_REACH", "0", 1);
  const std::unique_ptr<Cards> cards = CardsOrNull(3, -1);
  CheckAll(*cards, {0, 1, 2});
  unsetenv("BRAID_FAKE_REACH");
}

TEST(CudaGroupTest, DevicesOfOneCard) {
  const std::unique_ptr<Cards> cards = CardsOrNull(3, 0);
  ASSERT_NE(cards, nullptr);
  CheckAll(*cards, {2, 0});  // not all, and in another order
}

TEST(CudaGroupTest, EveryTypeAndOperation) {
  const std::unique_ptr<Cards> cards = CardsOrNull(3, 0);
  ASSERT_TRUE(cards != nullptr && cards->status().ok());
  uint64_t id = 1;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32,
                            DType::kI64, DType::kU8, DType::kI8, DType::kU16}) {
    for (const Sbp::Kind reduction :
         {Sbp::Kind::kPartialSum, Sbp::Kind::kPartialMax, Sbp::Kind::kPartialMin}) {
      for (const int64_t shift : {0, 1}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " by " +
                     std::to_string(static_cast<int>(reduction)));
        Case c{.kind = CollectiveKind::kAllReduce,
               .devices = {0, 1, 2},
               .counts = {1003},
               .dtype = dtype,
               .reduction = reduction,
               .shift = shift};
        CollectiveOfCards(*cards, std::move(c), id++).RunAndCheck();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Blocks that do not fit into what is copied at a time.
TEST(CudaGroupTest, LargeBlocksAreCopiedPieceByPiece) {
  setenv("BRAID_FAKE_REACH", "0", 1);
  const std::unique_ptr<Cards> cards = CardsOrNull(2, -1);
  unsetenv("BRAID_FAKE_REACH");
  if (cards == nullptr) GTEST_SKIP() << "there are not two cards";
  ASSERT_TRUE(cards->status().ok()) << cards->status();
  for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
    Case c{.kind = kind,
           .devices = {0, 1},
           .counts = CountsOf(kind, 2, (int64_t{5} << 20) / 2, true),
           .in_place = true};
    CollectiveOfCards(*cards, std::move(c), static_cast<uint64_t>(kind) + 1).RunAndCheck();
    if (HasFatalFailure()) return;
  }
}

// Each collective begins before the one before it is done on all devices.
TEST(CudaGroupTest, OneAfterTheOtherWithoutWaiting) {
  const std::unique_ptr<Cards> cards = CardsOrNull(2, 0);
  ASSERT_TRUE(cards != nullptr && cards->status().ok());
  constexpr int64_t kElements = 5000, kCollectives = 20;
  std::vector<std::vector<std::unique_ptr<DeviceCollective>>> ends(2);
  for (int64_t i = 0; i < kCollectives; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      auto end = cards->group().Create({.id = static_cast<uint64_t>(i + 1),
                                        .kind = CollectiveKind::kAllReduce,
                                        .devices = {0, 1},
                                        .my_rank = rank,
                                        .counts = {kElements},
                                        .receives = {}});
      ASSERT_TRUE(end.ok()) << end.status();
      ends[rank].push_back(*std::move(end));
    }
  }
  std::vector<std::vector<double>> results(2);
  const std::vector<float> ones(kElements, 1);
  std::barrier meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Device& device = *cards->devices()[rank];
      Stream& stream = device.stream(StreamKind::kCollective);
      std::byte* const data = device.arena(MemoryKind::kOwn).data();
      stream.Copy(data, reinterpret_cast<const std::byte*>(ones.data()), kElements * sizeof(float));
      for (int64_t i = 0; i < kCollectives; ++i) {
        ends[rank][i]->Come(data, data);
        meeting.arrive_and_wait();
        ends[rank][i]->Queue();
      }
      std::vector<float> sums(kElements);
      stream.Copy(reinterpret_cast<std::byte*>(sums.data()), data, kElements * sizeof(float));
      cards->Wait(rank);
      results[rank].assign(sums.begin(), sums.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& sums : results) {
    EXPECT_EQ(sums, std::vector<double>(kElements, double{1 << kCollectives}));
  }
}

// The other ones wait for marks that never come from it.
TEST(CudaGroupTest, ACardThatFailsEndsTheWorkOfTheOthers) {
  const std::unique_ptr<Cards> cards = CardsOrNull(3, 0);
  ASSERT_TRUE(cards != nullptr && cards->status().ok());
  static_cast<cuda::CudaDevice&>(*cards->devices()[1]).Fail(absl::InternalError("it fell out"));
  for (const auto& device : cards->devices()) {
    EXPECT_EQ(device->Allocate(MemoryKind::kOwn, 1).status().message(), "it fell out");
  }
}

}  // namespace
}  // namespace braid
