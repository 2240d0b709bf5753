// A rank of a layout is named by three things: its box (the coordinates in the dimensions that
// split), its addend or position (those in the partial dimensions) and its copy (those in the
// broadcast dimensions). Source boxes are met with the destination box by arithmetic; for each pair
// Addends() says which of the source's addends a position of the destination takes, and Holder()
// which copy of an addend is read. Both sides ask these same two functions, so that they agree.
#include "compiler/plan/exchange_moves.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "glog/logging.h"

namespace braid::compiler {
namespace {

// The part of n elements cut in `parts` (see SplitEvenly) that holds element `i`.
int64_t PartHolding(int64_t n, int64_t parts, int64_t i) {
  int64_t size = n / parts;
  int64_t longer = n % parts;
  int64_t in_longer = longer * (size + 1);
  return i < in_longer ? i / (size + 1) : longer + (i - in_longer) / size;
}

// One end of an exchange.
class Side {
 public:
  Side(const Placement& placement, const TensorLayout& layout)
      : placement_(placement), sbp_(layout.sbp) {
    const std::vector<int64_t>& hierarchy = placement.hierarchy();
    CHECK_EQ(static_cast<size_t>(sbp_.rank()), hierarchy.size())
        << layout.ToString() << " on " << placement.ToString();
    strides_.resize(hierarchy.size());
    int64_t stride = 1;
    for (size_t dim = hierarchy.size(); dim-- > 0; stride *= hierarchy[dim]) strides_[dim] = stride;
    addend_offsets_ = copy_offsets_ = {0};
    for (int dim = 0; dim < sbp_.rank(); ++dim) {
      if (hierarchy[dim] == 1) continue;  // one part: all kinds are the same
      if (sbp_[dim].is_split()) {
        split_dims_.push_back(dim);
        continue;
      }
      if (sbp_[dim].is_partial()) {
        CHECK(!partial_ || *partial_ == sbp_[dim].kind)
            << layout.ToString() << " mixes two kinds of partial values";
        partial_ = sbp_[dim].kind;
      }
      auto& offsets = sbp_[dim].is_partial() ? addend_offsets_ : copy_offsets_;
      std::vector<int64_t> finer;
      finer.reserve(offsets.size() * hierarchy[dim]);
      for (int64_t offset : offsets) {
        for (int64_t i = 0; i < hierarchy[dim]; ++i) finer.push_back(offset + i * strides_[dim]);
      }
      offsets = std::move(finer);
    }
    for (int rank = 0; rank < placement.size(); ++rank) {
      by_device_.emplace_back(placement.device(rank), rank);
    }
    std::sort(by_device_.begin(), by_device_.end());
  }

  const Placement& placement() const { return placement_; }
  std::optional<Sbp::Kind> partial() const { return partial_; }
  int addends() const { return static_cast<int>(addend_offsets_.size()); }
  int copies() const { return static_cast<int>(copy_offsets_.size()); }

  // The rank that holds copy 0 of addend 0 of this rank's box: the box's name.
  int BoxOf(int rank) const {
    int64_t box = 0;
    for (int dim : split_dims_) box += Coordinate(rank, dim) * strides_[dim];
    return static_cast<int>(box);
  }
  int AddendOf(int rank) const {
    int64_t addend = 0;
    for (int dim = 0; dim < sbp_.rank(); ++dim) {
      if (!sbp_[dim].is_partial()) continue;
      addend = addend * placement_.hierarchy()[dim] + Coordinate(rank, dim);
    }
    return static_cast<int>(addend);
  }
  int RankOf(int box, int addend, int copy) const {
    return static_cast<int>(box + addend_offsets_[addend] + copy_offsets_[copy]);
  }
  int RankOn(const DeviceId& device) const {  // -1: not here
    auto found = std::lower_bound(by_device_.begin(), by_device_.end(), std::pair(device, -1));
    return found != by_device_.end() && found->first == device ? found->second : -1;
  }
  // Ranks on a node that hold `addend` of `box`, by device.
  void RanksOnNode(int node, int box, int addend, std::vector<int>* ranks) const {
    ranks->clear();
    auto it = std::lower_bound(by_device_.begin(), by_device_.end(),
                               std::pair(DeviceId{.node = node, .device = 0}, -1));
    for (; it != by_device_.end() && it->first.node == node; ++it) {
      if (BoxOf(it->second) == box && AddendOf(it->second) == addend) ranks->push_back(it->second);
    }
  }

  // Calls visit(box, its number in rank order among the boxes, the part of it inside `target`) for
  // all boxes that share elements with `target`.
  template <class Visit>
  void VisitBoxes(const Shape& shape, const Region& target, Visit visit) const {
    if (target.empty()) return;
    Region box = Region::Whole(shape);
    VisitBoxes(0, 0, 0, box, target, visit);
  }

 private:
  int64_t Coordinate(int rank, int dim) const {
    return rank / strides_[dim] % placement_.hierarchy()[dim];
  }

  template <class Visit>
  void VisitBoxes(size_t next, int64_t rank, int64_t number, Region& box, const Region& target,
                  Visit& visit) const {
    if (next == split_dims_.size()) {
      Region common = Intersect(box, target);
      if (!common.empty()) visit(static_cast<int>(rank), number, common);
      return;
    }
    const int dim = split_dims_[next];
    const int axis = sbp_[dim].axis;
    const int64_t parts = placement_.hierarchy()[dim];
    const int64_t offset = box.offset[axis], n = box.size[axis];
    const int64_t begin = std::max<int64_t>(target.offset[axis] - offset, 0);
    const int64_t end = std::min(target.offset[axis] + target.size[axis] - offset, n);
    if (begin >= end) return;
    const int64_t last = PartHolding(n, parts, end - 1);
    for (int64_t i = PartHolding(n, parts, begin); i <= last; ++i) {
      Interval part = SplitEvenly(n, parts, i);
      box.offset[axis] = offset + part.offset;
      box.size[axis] = part.size;
      VisitBoxes(next + 1, rank + i * strides_[dim], number * parts + i, box, target, visit);
    }
    box.offset[axis] = offset;
    box.size[axis] = n;
  }

  const Placement& placement_;
  const NdSbp& sbp_;
  std::vector<int64_t> strides_;
  std::vector<int> split_dims_;
  std::optional<Sbp::Kind> partial_;
  std::vector<int64_t> addend_offsets_, copy_offsets_;  // of ranks, from a box's rank
  std::vector<std::pair<DeviceId, int>> by_device_;
};

}  // namespace

class ExchangeMoves::Impl {
 public:
  Impl(const TaskGroup& group, const Placement& source)
      : layout_(group.movement()->source),
        destination_(group.movement()->destination),
        from_(source, layout_),
        to_(group.placement, destination_),
        shared_devices_(source.device_type() == group.placement.device_type()) {
    CHECK(layout_.type == destination_.type) << group.name;
    CHECK(layout_.micro_batch_sbp == destination_.micro_batch_sbp &&
          layout_.micro_batches == destination_.micro_batches)
        << group.name;
    shape_ = layout_.type.shape;
    if (layout_.micro_batch_sbp.is_split())
      shape_[layout_.micro_batch_sbp.axis] /= layout_.micro_batches;
    // A sum has the neutral addend that an empty position holds anyhow (zero). For the largest or
    // smallest there is none, but an addend may count twice: no position stays empty.
    repeats_ = to_.partial() && *to_.partial() != Sbp::Kind::kPartialSum;
    if (!to_.partial()) {
      sharing_ = Sharing::kAll;
    } else if (!from_.partial() || from_.partial() == to_.partial()) {
      sharing_ = Sharing::kSpread;
    } else {
      sharing_ = repeats_ ? Sharing::kAll : Sharing::kFirst;
    }
  }

  std::vector<Move> To(int rank) const {
    std::vector<Move> moves;
    const int to_box = to_.BoxOf(rank);
    const int position = to_.AddendOf(rank);
    const Region whole = RegionOf(destination_, to_.placement(), rank);
    from_.VisitBoxes(shape_, whole, [&](int from_box, int64_t number, const Region& region) {
      const std::vector<int> addends = Addends(from_box, number, to_box, position);
      for (size_t i = 0; i < addends.size(); ++i) {
        moves.push_back({.source_rank = Holder(from_box, addends[i], rank),
                         .destination_rank = rank,
                         .region = region,
                         .add = i > 0,
                         .is_whole = addends.size() == 1 && region == whole});
      }
    });
    return moves;
  }

  std::vector<Move> From(int rank) const {
    std::vector<Move> moves;
    const int from_box = from_.BoxOf(rank);
    const int addend = from_.AddendOf(rank);
    const Region whole = RegionOf(layout_, from_.placement(), rank);
    // The number that VisitBoxes gives to this rank's box; an empty box sends nothing.
    std::optional<int64_t> number;
    from_.VisitBoxes(shape_, whole, [&](int box, int64_t n, const Region&) {
      if (box == from_box) number = n;
    });
    if (!number) return moves;
    to_.VisitBoxes(shape_, whole, [&](int to_box, int64_t, const Region& region) {
      for (int position : PositionsOf(addend, from_box, *number, to_box)) {
        const std::vector<int> addends = Addends(from_box, *number, to_box, position);
        if (std::find(addends.begin(), addends.end(), addend) == addends.end()) continue;
        for (int copy = 0; copy < to_.copies(); ++copy) {
          int destination = to_.RankOf(to_box, position, copy);
          if (Holder(from_box, addend, destination) != rank) continue;
          moves.push_back(
              {.source_rank = rank,
               .destination_rank = destination,
               .region = region,
               .add = addend != addends.front(),
               .is_whole = addends.size() == 1 &&
                           region == RegionOf(destination_, to_.placement(), destination)});
        }
      }
    });
    std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
      return a.destination_rank < b.destination_rank;
    });
    return moves;
  }

  // Adds up the moves between different devices.
  ExchangeTraffic Traffic() const {
    constexpr int64_t kMaxPairs = 1 << 14;
    const int64_t pairs = int64_t{from_.placement().size()} * to_.placement().size();
    if (pairs > kMaxPairs && sharing_ == Sharing::kAll) return TrafficByRegions();
    std::vector<int64_t> sent(from_.placement().size()), received(to_.placement().size());
    std::vector<int> sends(sent.size()), receives(received.size());
    ExchangeTraffic traffic;
    for (int rank = 0; rank < from_.placement().size(); ++rank) {
      for (const Move& move : From(rank)) {
        if (IsLocal(move)) continue;
        const int64_t bytes = Bytes(move.region);
        traffic.total_bytes += bytes;
        sent[rank] += bytes;
        received[move.destination_rank] += bytes;
        ++sends[rank];
        ++receives[move.destination_rank];
      }
    }
    for (const auto& bytes : {sent, received}) {
      traffic.busiest_bytes = std::max(traffic.busiest_bytes, *absl::c_max_element(bytes));
    }
    for (const auto& messages : {sends, receives}) {
      traffic.messages = std::max(traffic.messages, *absl::c_max_element(messages));
    }
    return traffic;
  }

 private:
  int64_t Bytes(const Region& region) const {
    return region.size.num_elements() * static_cast<int64_t>(SizeOf(layout_.type.dtype));
  }
  bool IsLocal(const Move& move) const {
    return shared_devices_ && from_.placement().device(move.source_rank) ==
                                  to_.placement().device(move.destination_rank);
  }

  // kAll: every rank receives its box once an addend, but for what its own device holds.
  ExchangeTraffic TrafficByRegions() const {
    ExchangeTraffic traffic;
    for (int rank = 0; rank < to_.placement().size(); ++rank) {
      const Region region = RegionOf(destination_, to_.placement(), rank);
      int64_t bytes = Bytes(region) * from_.addends();
      const int own = shared_devices_ ? from_.RankOn(to_.placement().device(rank)) : -1;
      if (own >= 0) bytes -= Bytes(Intersect(RegionOf(layout_, from_.placement(), own), region));
      traffic.total_bytes += bytes;
      traffic.busiest_bytes = std::max(traffic.busiest_bytes, bytes);
    }
    const int64_t senders = from_.placement().size();
    traffic.busiest_bytes =
        std::max(traffic.busiest_bytes, (traffic.total_bytes + senders - 1) / senders);
    from_.VisitBoxes(shape_, RegionOf(destination_, to_.placement(), 0),
                     [&](int, int64_t, const Region&) { traffic.messages += from_.addends(); });
    return traffic;
  }

  // Which addends a position of a partial destination takes.
  enum class Sharing {
    kAll,     // every position needs the logical value
    kFirst,   // position 0 takes all: another reduction than the destination's must be done
    kSpread,  // each addend goes to one position
  };

  // Addends of a source box that `position` of a destination box takes, ascending.
  std::vector<int> Addends(int from_box, int64_t number, int to_box, int position) const {
    std::vector<int> addends;
    if (sharing_ == Sharing::kSpread) {
      for (int addend = 0; addend < from_.addends(); ++addend) {
        if (PositionOf(addend, from_box, number, to_box) == position) addends.push_back(addend);
      }
      if (addends.empty() && repeats_) addends.push_back(position % from_.addends());
    } else if (sharing_ == Sharing::kAll || position == 0) {
      addends.resize(from_.addends());
      std::iota(addends.begin(), addends.end(), 0);
    }
    return addends;
  }

  // Positions whose Addends may have `addend`.
  std::vector<int> PositionsOf(int addend, int from_box, int64_t number, int to_box) const {
    if (sharing_ == Sharing::kFirst) return {0};
    if (sharing_ == Sharing::kSpread && !repeats_) {
      return {PositionOf(addend, from_box, number, to_box)};
    }
    std::vector<int> positions(to_.addends());
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }

  // kSpread: an addend stays on its device where that device holds the destination box.
  int PositionOf(int addend, int from_box, int64_t number, int to_box) const {
    for (int copy = 0; shared_devices_ && copy < from_.copies(); ++copy) {
      int rank = to_.RankOn(from_.placement().device(from_.RankOf(from_box, addend, copy)));
      if (rank >= 0 && to_.BoxOf(rank) == to_box) return to_.AddendOf(rank);
    }
    return static_cast<int>((number * from_.addends() + addend) % to_.addends());
  }

  // The source rank from which `destination` reads an addend of a box: its own device, else one on
  // its node, else any; the load is spread by the destination's rank.
  int Holder(int from_box, int addend, int destination) const {
    if (from_.copies() == 1) return from_.RankOf(from_box, addend, 0);
    const DeviceId& device = to_.placement().device(destination);
    int own = shared_devices_ ? from_.RankOn(device) : -1;
    if (own >= 0 && from_.BoxOf(own) == from_box && from_.AddendOf(own) == addend) return own;
    std::vector<int> near;
    from_.RanksOnNode(device.node, from_box, addend, &near);
    if (!near.empty()) return near[destination % near.size()];
    return from_.RankOf(from_box, addend, destination % from_.copies());
  }

  const TensorLayout& layout_;
  const TensorLayout& destination_;
  Shape shape_;  // of one act
  Side from_, to_;
  bool shared_devices_;
  bool repeats_ = false;
  Sharing sharing_ = Sharing::kAll;
};

ExchangeMoves::ExchangeMoves(const TaskGroup& exchange, const Placement& source)
    : impl_(std::make_unique<const Impl>(exchange, source)) {}

ExchangeMoves::~ExchangeMoves() = default;

std::vector<Move> ExchangeMoves::To(int destination_rank) const {
  return impl_->To(destination_rank);
}

std::vector<Move> ExchangeMoves::From(int source_rank) const { return impl_->From(source_rank); }

ExchangeTraffic ExchangeMoves::Traffic() const { return impl_->Traffic(); }

}  // namespace braid::compiler
