// Collectives that cards do among themselves, against their definition, bit for bit: on cards that
// see each other's memory, on cards that do not, and on devices that share a card. Without
// BRAID_TEST_DEVICE the cards are those of module_on_host.cc.
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/reactor.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_kind.h"
#include "runtime/dtype_traits.h"
#include "runtime/kernels/kernel.h"
#include "tests/cuda/collective_parts.h"

namespace braid {
namespace {

constexpr int kPieces = 3;
constexpr uint64_t kSpan = uint64_t{48} << 20;  // of a device's arena, for an input or an output

bool AreReal() { return std::getenv("BRAID_TEST_DEVICE") != nullptr; }

// Devices of one node with their group.
class Cards {
 public:
  // `card`: as CudaOptions::card. `is_alone`: there are no other nodes.
  explicit Cards(int devices, int card, bool is_alone = true) {
    const auto options = std::make_shared<cuda::CudaOptions>();
    options->card = card;
    if (!AreReal()) {
      options->module =
          std::filesystem::read_symlink("/proc/self/exe").parent_path() / "braid_cuda_on_host.so";
    }
    const DeviceKinds::Kind kind = cuda::CudaKind(options);
    status_ = kind.open(devices);
    if (!status_.ok()) return;
    if (!is_alone) library_ = kind.between_nodes(devices).library;
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
  const std::string& library() const { return library_; }
  std::unique_ptr<Reactor> StartReactor() { return environment_->StartReactor("member"); }

  absl::Status StatusAfter(int device) {
    const std::unique_ptr<Event> reached = environment_->MakeEvent();
    absl::Status status;
    devices_[device]->stream(StreamKind::kCollective).Notify([&](const absl::Status& at) {
      status = at;
      reached->Set();
    });
    const absl::Status waited = environment_->Await(*reached, 60 * kSecond);
    return waited.ok() ? status : waited;
  }
  void Wait(int device) { ASSERT_EQ(StatusAfter(device), absl::OkStatus()); }

 private:
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  const KernelRegistry cpu_kernels_;
  absl::Status status_;
  std::string library_;
  Devices devices_;
  std::unique_ptr<DeviceGroup> group_;
};

using Bytes = std::vector<std::byte>;

absl::Status QueueOn(Reactor& reactor, DeviceCollective& end, const Bytes& word) {
  std::promise<absl::Status> queued;
  reactor.Post(
      [&] { end.Queue(word, [&](absl::Status status) { queued.set_value(std::move(status)); }); });
  return queued.get_future().get();
}

struct Case {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int> devices;  // by rank
  // As in the spec; of an all_to_all those of each rank, one after the other.
  std::vector<int64_t> counts;
  DType dtype = DType::kF32;
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;
  bool in_place = false;
  int64_t shift = 0;            // elements by which inputs and outputs begin late
  std::vector<int> nodes = {};  // by rank; empty: there is one
};

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

int64_t Sum(const std::vector<int64_t>& counts, size_t before) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(before), int64_t{0});
}

class CollectiveOfCards {
 public:
  // `nodes`: their cards.
  CollectiveOfCards(std::vector<Cards*> nodes, Case c, uint64_t id)
      : nodes_(std::move(nodes)), case_(std::move(c)), word_(kDeviceWordBytes) {
    for (int rank = 0; rank < members(); ++rank) {
      reactors_.push_back(NodeOf(rank).StartReactor());
      specs_.push_back(SpecOf(id, rank));
      auto end = NodeOf(rank).group().Create(specs_.back());
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
      const std::vector<Bytes> expected = Expected();
      for (int rank = 0; rank < members(); ++rank) {
        ASSERT_TRUE(outputs_[rank] == expected[rank]) << "rank " << rank << ", piece " << piece;
      }
    }
  }

 private:
  int members() const { return static_cast<int>(case_.devices.size()); }
  Cards& NodeOf(int rank) const { return *nodes_[case_.nodes.empty() ? 0 : case_.nodes[rank]]; }

  DeviceCollectiveSpec SpecOf(uint64_t id, int rank) const {
    DeviceCollectiveSpec spec{.id = id,
                              .kind = case_.kind,
                              .devices = case_.devices,
                              .nodes = case_.nodes,
                              .reactor = reactors_[rank].get(),
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
    Device& device = *NodeOf(rank).devices()[case_.devices[rank]];
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
    Bytes said(kDeviceWordBytes);
    ASSERT_TRUE(ends_[rank]->Tell(said).ok());
    if (rank == 0) word_ = said;
    meeting.arrive_and_wait();
    const absl::Status queued = QueueOn(*reactors_[rank], *ends_[rank], word_);
    ASSERT_TRUE(queued.ok()) << queued;
    outputs_[rank].resize(static_cast<size_t>(OutputElements(rank) * size));
    stream.Copy(outputs_[rank].data(), output, outputs_[rank].size());
    NodeOf(rank).Wait(case_.devices[rank]);
  }

  // By rank.
  std::vector<Bytes> Expected() const {
    std::vector<Bytes> expected(specs_.size());
    std::vector<cuda::CollectivePart> parts;
    for (int rank = 0; rank < members(); ++rank) {
      const DeviceCollectiveSpec& spec = specs_[rank];
      const auto size = static_cast<int64_t>(SizeOf(spec.dtype));
      expected[rank].resize(static_cast<size_t>(OutputElements(rank) * size));
      parts.push_back({.call = {.kind = spec.kind,
                                .dtype = spec.dtype,
                                .element_bytes = size,
                                .reduction = cuda::CombineNumber(spec.reduction),
                                .members = members(),
                                .rank = rank,
                                .root = spec.root,
                                .input = inputs_[rank].data(),
                                .output = expected[rank].data()},
                       .counts = spec.counts});
    }
    cuda::CarryOut(parts);
    return expected;
  }

  const std::vector<Cards*> nodes_;
  const Case case_;
  Bytes word_;                                      // what rank 0 tells
  std::vector<std::unique_ptr<Reactor>> reactors_;  // by rank
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

// `nodes`: as in a Case.
void CheckAll(const std::vector<Cards*>& cards, const std::vector<int>& devices,
              const std::vector<int>& nodes = {}) {
  for (const Cards* node : cards) ASSERT_TRUE(node->status().ok()) << node->status();
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
                 .shift = shift,
                 .nodes = nodes};
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
    CheckAll({cards.get()}, all);
  }
}

TEST(CudaGroupTest, CardsThatDoNotSeeEachOther) {
  if (AreReal()) GTEST_SKIP() << "real cards see each other or do not";
  setenv("BRAID_FAKE_REACH", "0", 1);
  const std::unique_ptr<Cards> cards = CardsOrNull(3, -1);
  CheckAll({cards.get()}, {0, 1, 2});
  unsetenv("BRAID_FAKE_REACH");
}

TEST(CudaGroupTest, DevicesOfOneCard) {
  const std::unique_ptr<Cards> cards = CardsOrNull(3, 0);
  ASSERT_NE(cards, nullptr);
  CheckAll({cards.get()}, {2, 0});  // not all, and in another order
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
        CollectiveOfCards({cards.get()}, std::move(c), id++).RunAndCheck();
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
    CollectiveOfCards({cards.get()}, std::move(c), static_cast<uint64_t>(kind) + 1).RunAndCheck();
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
                                        .nodes = {},
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
        ends[rank][i]->Queue({}, [](const absl::Status& queued) { EXPECT_TRUE(queued.ok()); });
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

// Two nodes of two cards each, which do collectives by NCCL.
class CardsOfTwoNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (AreReal()) GTEST_SKIP() << "NCCL wants the cards of two machines, or more than there are";
    setenv("BRAID_FAKE_CARDS", "2", 1);
    setenv("BRAID_FAKE_NCCL", "22809", 1);
    for (int i : {0, 1}) {
      reactors_[i].reset();
      nodes_[i] = std::make_unique<Cards>(2, -1, /*is_alone=*/false);
      ASSERT_TRUE(nodes_[i]->status().ok()) << nodes_[i]->status();
      EXPECT_EQ(nodes_[i]->library(), "NCCL 2.28.9");
      reactors_[i] = nodes_[i]->StartReactor();
    }
  }
  void TearDown() override {
    unsetenv("BRAID_FAKE_NCCL");
    unsetenv("BRAID_FAKE_NCCL_FAILS");
  }

  std::vector<Cards*> both() const { return {nodes_[0].get(), nodes_[1].get()}; }
  // Of card 0 of each node.
  std::unique_ptr<DeviceCollective> EndOf(int rank, uint64_t id) const {
    auto end = nodes_[rank]->group().Create({.id = id,
                                             .kind = CollectiveKind::kAllReduce,
                                             .devices = {0, 0},
                                             .nodes = {0, 1},
                                             .reactor = reactors_[rank].get(),
                                             .my_rank = rank,
                                             .counts = {100},
                                             .receives = {}});
    CHECK(end.ok()) << end.status();
    return *std::move(end);
  }
  // Comes and says what it has to.
  Bytes Come(int rank, DeviceCollective& end) const {
    std::byte* const data = nodes_[rank]->devices()[0]->arena(MemoryKind::kOwn).data();
    end.Come(data, data);
    Bytes word(kDeviceWordBytes);
    EXPECT_TRUE(end.Tell(word).ok());
    return word;
  }

  absl::Status QueueOn(int rank, DeviceCollective& end, const Bytes& word) const {
    return braid::QueueOn(*reactors_[rank], end, word);
  }
  // On both nodes at once.
  void QueueBoth(DeviceCollective& first, DeviceCollective& second, const Bytes& word) const {
    std::thread elsewhere([&] { EXPECT_TRUE(QueueOn(1, second, word).ok()); });
    EXPECT_TRUE(QueueOn(0, first, word).ok());
    elsewhere.join();
  }

  std::unique_ptr<Cards> nodes_[2];
  std::unique_ptr<Reactor> reactors_[2];
};

TEST_F(CardsOfTwoNodes, DoEveryCollective) {
  CheckAll(both(), {0, 1, 1, 0}, {0, 1, 0, 1});
  CheckAll(both(), {1, 0}, {1, 0});
}

TEST_F(CardsOfTwoNodes, ReduceEveryTypeThatPlansGiveThem) {
  uint64_t id = 1;
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    for (const Sbp::Kind reduction :
         {Sbp::Kind::kPartialSum, Sbp::Kind::kPartialMax, Sbp::Kind::kPartialMin}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " by " +
                   std::to_string(static_cast<int>(reduction)));
      Case c{.kind = CollectiveKind::kReduceScatter,
             .devices = {0, 0, 1},
             .counts = {7, 0, 503},
             .dtype = dtype,
             .reduction = reduction,
             .nodes = {0, 1, 1}};
      CollectiveOfCards(both(), std::move(c), id++).RunAndCheck();
      if (HasFatalFailure()) return;
    }
  }
}

// A word once for each list of members, and never again.
TEST_F(CardsOfTwoNodes, MeetByOneWord) {
  for (uint64_t id = 1; id <= 3; ++id) {
    const auto first = EndOf(0, id), second = EndOf(1, id);
    const Bytes word = Come(0, *first), other = Come(1, *second);
    EXPECT_EQ(word != Bytes(kDeviceWordBytes), id == 1);
    EXPECT_EQ(other, Bytes(kDeviceWordBytes));
    QueueBoth(*first, *second, word);
    for (Cards* node : both()) node->Wait(0);
  }
}

// A card that waits for another one in its stream learns that it has gone.
TEST_F(CardsOfTwoNodes, AMemberThatIsLostIsSaid) {
  setenv("BRAID_FAKE_NCCL_FAILS", "0", 1);
  const auto first = EndOf(0, 1), second = EndOf(1, 1);
  const Bytes word = Come(0, *first);
  Come(1, *second);
  QueueBoth(*first, *second, word);
  // The streams go on, as NCCL's kernels end; what is due then says why.
  absl::Status status;
  while (status.ok()) status = nodes_[0]->StatusAfter(0);
  EXPECT_EQ(status, absl::UnavailableError("cuda 0 (card 0): NCCL says of its work: remote process "
                                           "exited; NCCL_DEBUG=WARN makes it say more"));
}

// One node joins, or has its part queued, and the other one does not come.
TEST_F(CardsOfTwoNodes, NobodyWaitsAfterAnAbort) {
  for (const bool has_joined : {false, true}) {
    SCOPED_TRACE(has_joined);
    if (has_joined) SetUp();
    const auto first = EndOf(0, 1);
    Bytes word = Come(0, *first);
    if (has_joined) {
      const auto second = EndOf(1, 1);
      Come(1, *second);
      QueueBoth(*first, *second, word);
      word = Come(0, *first);
    }
    absl::Status queued;
    std::thread device([&] { queued = QueueOn(0, *first, word); });
    if (has_joined) device.join();
    nodes_[0]->group().Abort();
    if (!has_joined) device.join();
    EXPECT_EQ(queued.ok(), has_joined) << queued;
    EXPECT_TRUE(nodes_[0]->StatusAfter(0).ok());
    EXPECT_EQ(QueueOn(0, *first, word), absl::AbortedError("another member has failed"));
  }
}

TEST_F(CardsOfTwoNodes, WithoutNcclThereAreNone) {
  setenv("BRAID_FAKE_NCCL", "0", 1);
  Cards alone(1, -1, /*is_alone=*/false);
  EXPECT_EQ(alone.library(), "");
  const auto end = alone.group().Create(
      {.id = 1, .devices = {0, 0}, .nodes = {0, 1}, .counts = {1}, .receives = {}});
  EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace braid
