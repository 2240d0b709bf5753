#include "tests/comm/collective_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

template <typename T>
void Sum(void* dst, const void* a, const void* b, int64_t n) {
  T* to = static_cast<T*>(dst);
  const T* first = static_cast<const T*>(a);
  const T* second = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; ++i) to[i] = first[i] + second[i];
}

// Values whose sums round, so that another order of additions shows.
std::vector<std::byte> RandomElements(ElementType type, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n * SizeOf(type));
  for (int64_t i = 0; i < n; ++i) {
    const double value = (static_cast<int>(random() % 2000001) - 1000000) / 997.0;
    const auto store = [&](auto element) {
      std::memcpy(bytes.data() + i * sizeof(element), &element, sizeof(element));
    };
    switch (type) {
      case ElementType::kFloat:
        store(static_cast<float>(value));
        break;
      case ElementType::kDouble:
        store(value);
        break;
      case ElementType::kInt32:
        store(static_cast<int32_t>(value));
        break;
    }
  }
  return bytes;
}

// Who is added up in which order, of block `b`: each list by itself, then these sums.
std::vector<std::vector<int>> SumOrder(const CollectiveCase& c, int b) {
  const int p = c.layout.size();
  std::vector<std::vector<int>> order;
  if (c.algorithm != CollectiveAlgorithm::kHierarchical) {
    const bool is_as_ring = c.algorithm == CollectiveAlgorithm::kRing ||
                            c.algorithm == CollectiveAlgorithm::kDoubling ||
                            c.algorithm == CollectiveAlgorithm::kPairwise;
    const int first = is_as_ring ? b + 1 : 0;
    order.emplace_back();
    for (int i = 0; i < p; ++i) order[0].push_back((first + i) % p);
    return order;
  }
  std::vector<std::vector<int>> members;  // of each host, which are numbered as they come
  for (int r = 0; r < p; ++r) {
    members.resize(std::max<size_t>(members.size(), c.hosts[r] + 1));
    members[c.hosts[r]].push_back(r);
  }
  const size_t place = std::ranges::find(members[c.hosts[b]], b) - members[c.hosts[b]].begin();
  for (size_t h = 1; h <= members.size(); ++h) {
    std::vector<int> host = members[(c.hosts[b] + h) % members.size()];
    std::rotate(host.begin(), host.begin() + static_cast<int64_t>(place), host.end());
    order.push_back(host);
  }
  return order;
}

int64_t SumCounts(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

int64_t SizeOf(ElementType type) { return type == ElementType::kDouble ? 8 : 4; }

ReduceFn SumOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat:
      return Sum<float>;
    case ElementType::kDouble:
      return Sum<double>;
    case ElementType::kInt32:
      return Sum<int32_t>;
  }
  return nullptr;
}

std::string CollectiveCase::Describe() const {
  std::string text = absl::StrFormat("%s %s, members on nodes", CollectiveAlgorithmName(algorithm),
                                     CollectiveKindName(kind));
  for (const uint16_t node : layout) absl::StrAppendFormat(&text, " %d", node);
  absl::StrAppendFormat(&text, ", hosts");
  for (const uint32_t host : hosts) absl::StrAppendFormat(&text, " %d", host);
  absl::StrAppendFormat(&text, ", counts");
  for (const int64_t count : counts) absl::StrAppendFormat(&text, " %d", count);
  absl::StrAppendFormat(&text, ", type %d, %s, root %d, placed from %d and lent from %d bytes on",
                        static_cast<int>(type), in_place ? "in place" : "out of place", root,
                        place_from, lend_from);
  return text;
}

std::vector<int64_t> MakeCounts(CollectiveKind kind, int members, int64_t n, bool uneven) {
  std::vector<int64_t> counts(kind == CollectiveKind::kAllToAll ? members * members : members, n);
  for (size_t i = 0; uneven && i < counts.size(); ++i) counts[i] = i % 3 == 1 ? 0 : n + 5 * i;
  if (NumCounts(kind, members) == 1) return {SumCounts(counts)};
  return counts;
}

CollectiveSpec MakeSpec(const CollectiveCase& c, uint32_t id, int rank) {
  CollectiveSpec spec;
  spec.id = id;
  spec.kind = c.kind;
  for (size_t r = 0; r < c.layout.size(); ++r) {
    spec.members.push_back({.node = c.layout[r],
                            .device = static_cast<uint32_t>(r),
                            .host = c.hosts.empty() ? 0 : c.hosts[r]});
  }
  spec.my_rank = rank;
  spec.element_size = SizeOf(c.type);
  if (c.kind == CollectiveKind::kAllToAll) {
    const size_t p = c.layout.size();
    for (size_t r = 0; r < p; ++r) {
      spec.counts.push_back(c.counts[rank * p + r]);
      spec.receives.push_back(c.counts[r * p + rank]);
    }
  } else {
    spec.counts = c.counts;
  }
  spec.reduce = SumOf(c.type);
  spec.root = c.root;
  spec.chunk_bytes = c.chunk_bytes;
  spec.algorithm = c.algorithm;
  spec.place_from = c.place_from;
  spec.lend_from = c.lend_from;
  return spec;
}

CollectiveRun::CollectiveRun(CommCluster& cluster, const CollectiveCase& c, uint32_t id,
                             const std::vector<Reactor*>& reactors)
    : cluster_(cluster),
      case_(c),
      reactors_(reactors),
      all_done_(cluster.nodes().environment().MakeEvent()) {
  const int p = c.layout.size();
  const int64_t size = SizeOf(c.type);
  const int64_t whole = SumCounts(c.counts);
  buffers_.resize(p);
  for (int rank = 0; rank < p; ++rank) {
    auto end = cluster.hub(c.layout[rank])
                   .Create(MakeSpec(c, id, rank), *reactors[rank],
                           cluster.nodes().allocate(c.layout[rank]));
    CHECK(end.ok()) << end.status();
    ends_.push_back(*std::move(end));
    int64_t inputs = whole, outputs = whole, own = 0;  // own: of the own block
    if (c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter) {
      for (int r = 0; r < rank; ++r) own += c.counts[r];
    }
    switch (c.kind) {
      case CollectiveKind::kAllReduce:
        break;
      case CollectiveKind::kBroadcast:
        inputs = rank == c.root ? whole : 0;
        break;
      case CollectiveKind::kAllGather:
        inputs = c.counts[rank];
        break;
      case CollectiveKind::kReduceScatter:
        outputs = c.counts[rank];
        break;
      case CollectiveKind::kAllToAll:
        inputs = outputs = 0;
        for (int r = 0; r < p; ++r) {
          inputs += c.counts[rank * p + r];
          outputs += c.counts[r * p + rank];
        }
        break;
    }
    for (int piece = 0; piece < c.num_pieces; ++piece) {
      PieceBuffers& b = buffers_[rank].emplace_back();
      b.original = RandomElements(c.type, inputs, 1000 * piece + rank + 1);
      b.output = cluster.nodes().Landing(c.layout[rank],
                                         std::vector<std::byte>(outputs * size, std::byte{0xee}));
      b.input = cluster.nodes().Landing(c.layout[rank], b.original);
      b.in = b.input.data();
      b.out = b.output.data();
      if (!c.in_place) continue;
      switch (c.kind) {
        case CollectiveKind::kAllToAll:
          break;
        case CollectiveKind::kReduceScatter:
          b.out = b.input.data() + own * size;
          break;
        case CollectiveKind::kAllGather:
          b.in = b.out + own * size;
          std::ranges::copy(b.original, b.out + own * size);
          break;
        default:
          b.in = b.out;
          std::ranges::copy(b.original, b.out);
      }
    }
  }
}

CollectiveRun::~CollectiveRun() {
  for (size_t rank = 0; rank < ends_.size(); ++rank) {
    RunOn(cluster_.nodes().environment(), *reactors_[rank], [&] { ends_[rank].reset(); });
  }
}

void CollectiveRun::Start() {
  missing_ = ends_.size();
  for (size_t rank = 0; rank < ends_.size(); ++rank) {
    reactors_[rank]->Post([this, rank] { StartPiece(rank, 0); });
  }
}

void CollectiveRun::StartPiece(int rank, int64_t piece) {
  const PieceBuffers& b = buffers_[rank][piece % case_.num_pieces];
  {
    MutexLock lock(mutex_);
    ++started_;
  }
  const bool reads_input = case_.kind != CollectiveKind::kBroadcast || rank == case_.root;
  ends_[rank]->Start(
      piece, reads_input ? b.in : nullptr, b.out, [this, rank, piece](absl::Status status) {
        EXPECT_TRUE(reactors_[rank]->InThread());
        {
          MutexLock lock(mutex_);
          ++answered_;
          status_.Update(status);
        }
        if (status.ok() && (case_.is_endless || piece + 1 < case_.num_pieces)) {
          // Every second one by Post: `done` may come inside Start, and that must not nest for
          // ever.
          if (piece % 2 == 0) return StartPiece(rank, piece + 1);
          reactors_[rank]->Post([this, rank, piece] { StartPiece(rank, piece + 1); });
          return;
        }
        MutexLock lock(mutex_);
        if (--missing_ == 0) all_done_->Set();
      });
}

absl::Status CollectiveRun::Wait() {
  const absl::Status waited = cluster_.nodes().environment().Await(*all_done_, kTestTimeout);
  EXPECT_TRUE(waited.ok()) << waited << "; " << case_.Describe();
  CHECK(waited.ok()) << "members are still under way";
  MutexLock lock(mutex_);
  return status_;
}

bool CollectiveRun::AllAnswered() const {
  MutexLock lock(mutex_);
  return missing_ == 0 && answered_ == started_;
}

std::vector<std::byte> CollectiveRun::Reference(int rank, int piece) const {
  const int p = case_.layout.size();
  const int64_t size = SizeOf(case_.type);
  const std::vector<int64_t>& counts = case_.counts;
  const int64_t whole = SumCounts(counts);
  const auto input = [&](int r) { return buffers_[r][piece].original.data(); };
  std::vector<std::byte> result;
  const auto append = [&](const std::byte* from, int64_t n) {
    result.insert(result.end(), from, from + n * size);
  };
  // Block `b`, which begins at element `offset`, in the algorithm's order.
  const auto append_sum = [&](int b, int64_t offset, int64_t n) {
    const size_t at = result.size();
    result.resize(at + n * size);
    bool is_first = true;
    for (const std::vector<int>& together : SumOrder(case_, b)) {
      std::vector<std::byte> sum(input(together[0]) + offset * size,
                                 input(together[0]) + (offset + n) * size);
      for (size_t i = 1; i < together.size(); ++i) {
        SumOf(case_.type)(sum.data(), sum.data(), input(together[i]) + offset * size, n);
      }
      if (is_first) {
        std::ranges::copy(sum, result.begin() + static_cast<int64_t>(at));
      } else {
        SumOf(case_.type)(result.data() + at, result.data() + at, sum.data(), n);
      }
      is_first = false;
    }
  };
  int64_t offset = 0;
  switch (case_.kind) {
    case CollectiveKind::kAllReduce:
      for (int b = 0; b < p; ++b) {
        const int64_t n = whole / p + (b < whole % p ? 1 : 0);
        append_sum(b, offset, n);
        offset += n;
      }
      break;
    case CollectiveKind::kReduceScatter:
      for (int b = 0; b < rank; ++b) offset += counts[b];
      append_sum(rank, offset, counts[rank]);
      break;
    case CollectiveKind::kAllGather:
      for (int b = 0; b < p; ++b) append(input(b), counts[b]);
      break;
    case CollectiveKind::kBroadcast:
      append(input(case_.root), whole);
      break;
    case CollectiveKind::kAllToAll:
      for (int from = 0; from < p; ++from) {
        int64_t before = 0;
        for (int to = 0; to < rank; ++to) before += counts[from * p + to];
        append(input(from) + before * size, counts[from * p + rank]);
      }
      break;
  }
  return result;
}

void CollectiveRun::Check() const {
  for (size_t rank = 0; rank < buffers_.size(); ++rank) {
    for (int piece = 0; piece < case_.num_pieces; ++piece) {
      const PieceBuffers& b = buffers_[rank][piece];
      const std::vector<std::byte> want = Reference(rank, piece);
      ASSERT_EQ(want.size(), b.output.size());
      ASSERT_TRUE(want.empty() || std::memcmp(want.data(), b.out, want.size()) == 0)
          << case_.Describe() << ": member " << rank << ", piece " << piece;
      if (!case_.in_place) {
        ASSERT_TRUE(std::ranges::equal(b.original, std::span(b.input.data(), b.input.size())))
            << case_.Describe() << ": the input was written";
      }
    }
  }
}

std::vector<std::byte> CollectiveRun::Result() const {
  std::vector<std::byte> result;
  for (const auto& pieces : buffers_) {
    for (const PieceBuffers& b : pieces)
      result.insert(result.end(), b.out, b.out + b.output.size());
  }
  return result;
}

}  // namespace braid
