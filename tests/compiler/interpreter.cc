#include "tests/compiler/interpreter.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/plan/exchange_moves.h"
#include "glog/logging.h"

namespace braid::compiler {
namespace {

int64_t Elements(const Region& region) { return region.size.num_elements(); }

// Calls f(index in a's dense values, index in b's) for the elements that both boxes have.
void ForEachCommon(const Region& a, const Region& b,
                   const std::function<void(int64_t, int64_t)>& f) {
  const Region common = Intersect(a, b);
  if (common.empty()) return;
  std::vector<int64_t> at = common.offset;
  auto index = [&at](const Region& box) {
    int64_t i = 0;
    for (int axis = 0; axis < box.size.rank(); ++axis) {
      i = i * box.size[axis] + at[axis] - box.offset[axis];
    }
    return i;
  };
  while (true) {
    f(index(a), index(b));
    int axis = common.size.rank() - 1;
    for (; axis >= 0; --axis) {
      if (++at[axis] < common.offset[axis] + common.size[axis]) break;
      at[axis] = common.offset[axis];
    }
    if (axis < 0) return;
  }
}

double Reduce(Sbp::Kind kind, double a, double b) {
  if (kind == Sbp::Kind::kPartialMax) return std::max(a, b);
  if (kind == Sbp::Kind::kPartialMin) return std::min(a, b);
  return a + b;
}

Sbp::Kind PartialKind(const NdSbp& sbp) {
  for (const Sbp& kind : sbp.dims()) {
    if (kind.is_partial()) return kind.kind;
  }
  return Sbp::Kind::kPartialSum;
}

// Which addend a rank holds, and how many there are.
std::pair<int64_t, int64_t> AddendOf(const NdSbp& sbp, const Placement& placement, int rank) {
  const std::vector<int64_t> coordinate = placement.CoordinateOf(rank);
  int64_t addend = 0, addends = 1;
  for (int dim = 0; dim < sbp.rank(); ++dim) {
    if (!sbp[dim].is_partial()) continue;
    addend = addend * placement.hierarchy()[dim] + coordinate[dim];
    addends *= placement.hierarchy()[dim];
  }
  return {addend, addends};
}

double MadeUpAddend(Sbp::Kind kind, int64_t addend, int64_t addends, int64_t element,
                    double value) {
  auto other = [element](int64_t a) { return static_cast<double>((a * 7 + element * 3) % 11 + 1); };
  const int64_t special = element % addends;
  if (kind == Sbp::Kind::kPartialMax) return addend == special ? value : value - other(addend);
  if (kind == Sbp::Kind::kPartialMin) return addend == special ? value : value + other(addend);
  if (addend != special) return other(addend);
  for (int64_t a = 0; a < addends; ++a) {
    if (a != special) value -= other(a);
  }
  return value;
}

Shape ActShape(const TensorLayout& layout) {
  Shape shape = layout.type.shape;
  if (layout.micro_batch_sbp.is_split()) shape[layout.micro_batch_sbp.axis] /= layout.micro_batches;
  return shape;
}

// Blocks of `values` (dense in `local`) along `axis`, one after another; `unpack` is the way back.
Numbers Pack(const Numbers& values, const Shape& local, const Attrs& attrs, bool unpack) {
  const auto axis = static_cast<int>(attrs.Int("axis"));
  const int64_t parts = attrs.Int("parts");
  const Region whole = Region::Whole(local);
  Numbers result(values.size());
  int64_t start = 0;
  for (int64_t part = 0; part < parts; ++part) {
    Region block = whole;
    const Interval interval = SplitEvenly(local[axis], parts, part);
    block.offset[axis] = interval.offset;
    block.size[axis] = interval.size;
    ForEachCommon(block, whole, [&](int64_t packed, int64_t dense) {
      if (unpack) {
        result[dense] = values[start + packed];
      } else {
        result[start + packed] = values[dense];
      }
    });
    start += Elements(block);
  }
  return result;
}

}  // namespace

Numbers TestValues(const Shape& shape) {
  Numbers values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 13 % 101) - 40;
  return values;
}

PerRank Cut(const Numbers& logical, const TensorLayout& layout, const Placement& placement) {
  const Region whole = Region::Whole(ActShape(layout));
  PerRank values(placement.size());
  for (int rank = 0; rank < placement.size(); ++rank) {
    const Region box = RegionOf(layout, placement, rank);
    const auto [addend, addends] = AddendOf(layout.sbp, placement, rank);
    values[rank].resize(Elements(box));
    ForEachCommon(box, whole, [&, addend = addend, addends = addends](int64_t i, int64_t element) {
      values[rank][i] =
          MadeUpAddend(PartialKind(layout.sbp), addend, addends, element, logical[element]);
    });
  }
  return values;
}

std::string Compare(const PerRank& values, const Numbers& logical, const TensorLayout& layout,
                    const Placement& placement) {
  if (static_cast<int>(values.size()) != placement.size()) return "wrong number of ranks";
  // Ranks that differ in partial dimensions only hold the addends of one box.
  std::map<std::vector<int64_t>, std::vector<int>> boxes;
  for (int rank = 0; rank < placement.size(); ++rank) {
    std::vector<int64_t> coordinate = placement.CoordinateOf(rank);
    for (int dim = 0; dim < layout.sbp.rank(); ++dim) {
      if (layout.sbp[dim].is_partial()) coordinate[dim] = 0;
    }
    boxes[coordinate].push_back(rank);
  }
  const Region whole = Region::Whole(ActShape(layout));
  std::string wrong;
  for (const auto& [coordinate, ranks] : boxes) {
    const Region box = RegionOf(layout, placement, ranks[0]);
    for (int rank : ranks) {
      if (static_cast<int64_t>(values[rank].size()) != Elements(box)) {
        return absl::StrCat("rank ", rank, " holds ", values[rank].size(), " elements, not ",
                            Elements(box));
      }
    }
    ForEachCommon(box, whole, [&, &ranks = ranks](int64_t i, int64_t element) {
      double value = values[ranks[0]][i];
      for (size_t k = 1; k < ranks.size(); ++k) {
        value = Reduce(PartialKind(layout.sbp), value, values[ranks[k]][i]);
      }
      if (value != logical[element] && wrong.empty()) {
        wrong = absl::StrCat("rank ", ranks[0], " element ", i, " is ", value, ", not ",
                             logical[element]);
      }
    });
  }
  return wrong;
}

void Interpreter::Run(const TaskGroup& group) {
  if (group.is<Exchange>()) return RunExchange(group);
  if (group.is<Collective>()) return RunCollective(group);
  CHECK(group.is<Compute>()) << group.name << " is no boxing group";
  RunKernel(group);
}

int64_t Interpreter::total_bytes() const {
  int64_t total = 0;
  for (const auto& [device, bytes] : sent_) total += bytes;
  return total;
}

int64_t Interpreter::busiest_bytes() const {
  int64_t busiest = 0;
  for (const auto* counts : {&sent_, &received_}) {
    for (const auto& [device, bytes] : *counts) busiest = std::max(busiest, bytes);
  }
  return busiest;
}

void Interpreter::Count(const DeviceId& from, const DeviceId& to, int64_t elements, DType dtype) {
  if (from == to) return;
  sent_[from] += elements * static_cast<int64_t>(SizeOf(dtype));
  received_[to] += elements * static_cast<int64_t>(SizeOf(dtype));
}

void Interpreter::RunExchange(const TaskGroup& group) {
  const Placement& source = graph_.reg(group.inputs[0].reg).placement;
  const PerRank& input = values_.at(group.inputs[0].reg);
  const Movement& movement = *group.movement();
  PerRank output(group.placement.size());
  const ExchangeMoves moves(group, source);
  for (int rank = 0; rank < group.placement.size(); ++rank) {
    const Region box = RegionOf(movement.destination, group.placement, rank);
    output[rank].assign(Elements(box), 0);
    for (const Move& move : moves.To(rank)) {
      const Region from = RegionOf(movement.source, source, move.source_rank);
      CHECK_EQ(Elements(Intersect(from, move.region)), Elements(move.region));
      CHECK_EQ(Elements(Intersect(box, move.region)), Elements(move.region));
      Numbers moved(Elements(move.region));
      ForEachCommon(from, move.region,
                    [&](int64_t i, int64_t j) { moved[j] = input[move.source_rank][i]; });
      ForEachCommon(box, move.region, [&](int64_t i, int64_t j) {
        double& value = output[rank][i];
        value = move.add ? Reduce(movement.reduction, value, moved[j]) : moved[j];
      });
      Count(source.device(move.source_rank), group.placement.device(rank), Elements(move.region),
            movement.source.type.dtype);
    }
  }
  values_[group.outputs[0]] = std::move(output);
}

void Interpreter::RunCollective(const TaskGroup& group) {
  const Placement& placement = group.placement;
  const int dim = std::get<Collective>(group.work).hierarchy_dim;
  PerRank output(placement.size());
  // Ranks that act together.
  std::map<std::vector<int64_t>, std::vector<int>> teams;
  for (int rank = 0; rank < placement.size(); ++rank) {
    std::vector<int64_t> coordinate = placement.CoordinateOf(rank);
    if (dim == -1) {
      coordinate.clear();
    } else {
      coordinate[dim] = 0;
    }
    teams[coordinate].push_back(rank);
  }
  for (const auto& [key, team] : teams) RunTeam(group, team, output);
  values_[group.outputs[0]] = std::move(output);
}

void Interpreter::RunTeam(const TaskGroup& group, const std::vector<int>& team, PerRank& output) {
  const Placement& placement = group.placement;
  const PerRank& input = values_.at(group.inputs[0].reg);
  const Movement& movement = *group.movement();
  const int64_t g = static_cast<int64_t>(team.size());
  auto source_box = [&](int64_t m) { return RegionOf(movement.source, placement, team[m]); };
  auto destination_box = [&](int64_t m) {
    return RegionOf(movement.destination, placement, team[m]);
  };
  auto count = [&](int64_t from, int64_t to, int64_t elements) {
    Count(placement.device(team[from]), placement.device(team[to]), elements,
          movement.source.type.dtype);
  };
  for (int64_t m = 0; m < g; ++m) {
    CHECK_EQ(static_cast<int64_t>(input[team[m]].size()), Elements(source_box(m)));
  }
  auto reduced = [&] {
    Numbers sum = input[team[0]];
    for (int64_t m = 1; m < g; ++m) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = Reduce(movement.reduction, sum[i], input[team[m]][i]);
      }
    }
    return sum;
  };
  switch (std::get<Collective>(group.work).kind) {
    case CollectiveKind::kAllReduce: {
      const Numbers sum = reduced();
      const auto n = static_cast<int64_t>(sum.size());
      for (int64_t m = 0; m < g; ++m) {
        output[team[m]] = sum;
        // The ring: all chunks but one's own, then all but the next one's.
        const int64_t next = (m + 1) % g;
        count(m, next, n - SplitEvenly(n, g, m).size);
        count(m, next, n - SplitEvenly(n, g, next).size);
      }
      break;
    }
    case CollectiveKind::kReduceScatter: {
      const Numbers sum = reduced();
      auto at = sum.begin();
      for (int64_t m = 0; m < g; ++m) {
        const int64_t n = Elements(destination_box(m));
        output[team[m]] = Numbers(at, at + n);
        at += n;
        count(m, (m + 1) % g, static_cast<int64_t>(sum.size()) - n);
      }
      CHECK(at == sum.end()) << group.name;
      break;
    }
    case CollectiveKind::kAllGather: {
      Numbers all;
      for (int rank : team) all.insert(all.end(), input[rank].begin(), input[rank].end());
      for (int64_t m = 0; m < g; ++m) {
        CHECK_EQ(static_cast<int64_t>(all.size()), Elements(destination_box(m)));
        output[team[m]] = all;
        const int64_t next = (m + 1) % g;
        count(m, next, static_cast<int64_t>(all.size()) - Elements(source_box(next)));
      }
      break;
    }
    case CollectiveKind::kAllToAll: {
      for (int64_t s = 0; s < g; ++s) {
        auto at = input[team[s]].begin();
        for (int64_t d = 0; d < g; ++d) {
          const int64_t n = Elements(Intersect(source_box(s), destination_box(d)));
          output[team[d]].insert(output[team[d]].end(), at, at + n);
          at += n;
          count(s, d, n);
        }
        CHECK(at == input[team[s]].end()) << group.name;
      }
      break;
    }
    case CollectiveKind::kBroadcast:
      LOG(FATAL) << "the compiler makes no broadcast: " << group.name;
  }
}

void Interpreter::RunKernel(const TaskGroup& group) {
  CHECK_EQ(group.kernels().size(), 1u);
  const KernelCall& kernel = group.kernels()[0];
  const PerRank& input = values_.at(group.inputs[0].reg);
  PerRank output(group.placement.size());
  for (int rank = 0; rank < group.placement.size(); ++rank) {
    const Region from = RegionOf(kernel.input_layouts[0], group.placement, rank);
    const Region to = RegionOf(kernel.output_layouts[0], group.placement, rank);
    CHECK_EQ(static_cast<int64_t>(input[rank].size()), Elements(from));
    if (kernel.op != "relayout") {
      CHECK(kernel.op == "block_pack" || kernel.op == "block_unpack") << kernel.op;
      output[rank] = Pack(input[rank], from.size, kernel.attrs, kernel.op == "block_unpack");
      continue;
    }
    bool contributes = true;
    const std::vector<int64_t> coordinate = group.placement.CoordinateOf(rank);
    for (size_t dim = 0; dim < coordinate.size(); ++dim) {
      const Sbp& before = kernel.input_layouts[0].sbp[static_cast<int>(dim)];
      const Sbp& after = kernel.output_layouts[0].sbp[static_cast<int>(dim)];
      if (after.is_partial() && !before.is_partial() && coordinate[dim] != 0) contributes = false;
    }
    output[rank].assign(Elements(to), 0);
    if (kernel.attrs.Bool("once") && !contributes) continue;
    ForEachCommon(to, from, [&](int64_t i, int64_t j) { output[rank][i] = input[rank][j]; });
  }
  values_[group.outputs[0]] = std::move(output);
}

}  // namespace braid::compiler
