#include "compiler/physical/take_turns.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/physical/keep_steady.h"
#include "graph/op_parts.h"

namespace braid::compiler {
namespace {

// Operands below this stay in the second-level cache anyway.
constexpr int64_t kLeastElements = 32 * 1024;
// Of a part: some operands of so many elements fit into the second-level cache.
constexpr int64_t kPartElements = 8 * 1024;

using Source = OperandRef::Source;

// Where an operand of rank 0 is; offsets are the same on every rank, and rank 0 holds the most.
struct Place {
  enum class Area { kArena, kScratch, kKept, kVariable } area = Area::kArena;
  std::string_view variable;
  int64_t begin = 0, bytes = 0;
  int64_t elements = 0;
  const Register* reg = nullptr;  // of several slots; null: of one, or none
  int scratch = kNone;
  bool is_written = false;
};

// What of a kernel matters here.
struct Turner {
  OpParts parts;
  std::vector<Place> operands;  // of one that has parts
};

class Turning {
 public:
  Turning(const PhysicalGraph& graph, const OpRegistry& registry, TaskGroup& group)
      : graph_(graph),
        group_(group),
        compute_(std::get<Compute>(group.work)),
        last_reader_(compute_.scratch.size(), kNone) {
    for (const KernelCall& call : compute_.kernels) {
      for (const OperandRef& ref : call.inputs) {
        if (ref.source == Source::kScratch) {
          last_reader_[ref.index] = static_cast<int>(turners_.size());
        }
      }
      turners_.push_back(TurnerOf(registry, call));
    }
  }

  void Run() {
    const int kernels = static_cast<int>(compute_.kernels.size());
    for (int begin = 0; begin < kernels;) {
      Turns turns = {.begin = begin, .end = begin + 1};
      while (turns.end < kernels && MayExtend(turns)) ++turns.end;
      begin = turns.end;
      if (turns.end == turns.begin + 1) continue;
      turns.part = PartOf(turns.begin, turns.end);
      FindStaying(turns);
      compute_.turns.push_back(std::move(turns));
    }
  }

 private:
  std::vector<TensorType> LocalTypes(const std::vector<TensorLayout>& layouts) const {
    std::vector<TensorType> types;
    for (const TensorLayout& layout : layouts) {
      types.push_back({layout.type.dtype, RegionOf(layout, group_.placement, 0).size});
    }
    return types;
  }

  Turner TurnerOf(const OpRegistry& registry, const KernelCall& call) const {
    const OpDef* const def = registry.Find(call.op);
    if (def == nullptr || MakesKept(compute_, call)) return {};
    const std::vector<TensorType> inputs = LocalTypes(call.input_layouts);
    const std::vector<TensorType> outputs = LocalTypes(call.output_layouts);
    Turner turner = {.parts = def->PartsOf({call.attrs, inputs, outputs}), .operands = {}};
    if (turner.parts.elements < kLeastElements) return {};
    if (!IsAlikeOnAllRanks(call, turner.parts.elements)) return {};
    for (size_t i = 0; i < inputs.size(); ++i) {
      turner.operands.push_back(PlaceOf(call.inputs[i], inputs[i]));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      turner.operands.push_back(PlaceOf(call.outputs[i], outputs[i]));
      turner.operands.back().is_written = true;
    }
    return turner;
  }

  // Whether operands that are alike on rank 0 are so on all: they have one layout, or each rank
  // holds as much of them as rank 0 does.
  bool IsAlikeOnAllRanks(const KernelCall& call, int64_t elements) const {
    const int last = group_.placement.size() - 1;
    const auto elements_of = [&](const TensorLayout& layout, int rank) {
      return RegionOf(layout, group_.placement, rank).size.num_elements();
    };
    const TensorLayout* first = nullptr;
    for (const auto* layouts : {&call.input_layouts, &call.output_layouts}) {
      for (const TensorLayout& layout : *layouts) {
        if (elements_of(layout, 0) != elements) continue;
        if (first == nullptr) first = &layout;
        const bool is_one_layout = layout.type.shape == first->type.shape &&
                                   layout.sbp == first->sbp &&
                                   layout.micro_batch_sbp == first->micro_batch_sbp &&
                                   layout.micro_batches == first->micro_batches;
        if (!is_one_layout &&
            (elements_of(layout, last) != elements || elements_of(*first, last) != elements)) {
          return false;
        }
      }
    }
    return true;
  }

  bool MayExtend(const Turns& turns) const {
    const int64_t elements = turners_[turns.begin].parts.elements;
    return elements != 0 && turners_[turns.end].parts.elements == elements &&
           PartOf(turns.begin, turns.end + 1) != 0 && MayFollow(turns.begin, turns.end);
  }

  // A multiple of the steps of the kernels [begin, end), or 0 if there is none that is small
  // enough.
  int64_t PartOf(int begin, int end) const {
    int64_t step = kPartVectors;
    for (int k = begin; k < end; ++k) {
      step = std::lcm(step, turners_[k].parts.step);
      if (step > kPartElements) return 0;
    }
    return kPartElements / step * step;
  }

  Place PlaceOf(const OperandRef& ref, const TensorType& local) const {
    Place place;
    place.elements = local.shape.num_elements();
    place.bytes = place.elements * static_cast<int64_t>(SizeOf(local.dtype));
    if (ref.source == Source::kScratch) {
      place.area = compute_.scratch[ref.index].is_kept ? Place::Area::kKept : Place::Area::kScratch;
      place.scratch = ref.index;
      place.begin = compute_.scratch[ref.index].offset;
      return place;
    }
    const Register& reg = graph_.reg(ref.source == Source::kInput ? group_.inputs[ref.index].reg
                                                                  : group_.outputs[ref.index]);
    const Part& part = reg.parts[ref.part];
    if (!part.variable.empty()) {
      place.area = Place::Area::kVariable;
      place.variable = part.variable;
      return place;
    }
    place.begin = reg.offset + part.offset;
    if (reg.slots > 1) place.reg = &reg;
    return place;
  }

  static bool Overlap(const Place& a, const Place& b) {
    if (a.area != b.area || a.variable != b.variable) return false;
    if (a.reg == b.reg) return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
    // Which slots an act has together is not known here.
    const auto all_slots = [](const Place& place) {
      if (place.reg == nullptr) return std::pair(place.begin, place.begin + place.bytes);
      return std::pair(place.reg->offset, place.reg->offset + place.reg->span_bytes());
    };
    const auto [a_begin, a_end] = all_slots(a);
    const auto [b_begin, b_end] = all_slots(b);
    return a_begin < b_end && b_begin < a_end;
  }

  // Whether parts of both are the same bytes, of kernels of so many elements.
  static bool IsSame(const Place& a, const Place& b, int64_t elements) {
    return a.reg == b.reg && a.begin == b.begin && a.bytes == b.bytes && a.elements == elements &&
           b.elements == elements;
  }

  // Whether the kernel may take turns with those from `begin` on that stand before it.
  bool MayFollow(int begin, int kernel) const {
    for (int before = begin; before < kernel; ++before) {
      for (const Place& a : turners_[before].operands) {
        for (const Place& b : turners_[kernel].operands) {
          if (!a.is_written && !b.is_written) continue;
          if (Overlap(a, b) && !IsSame(a, b, turners_[begin].parts.elements)) return false;
        }
      }
    }
    return true;
  }

  // Scratch that the kernels write and nobody reads after them. Memory of theirs overlaps element
  // by element or not at all, so nothing but other values of the same address lies there: what
  // stood in the first part before has been read when the second part begins, and what is to remain
  // must not be written over by values that stay.
  void FindStaying(Turns& turns) const {
    std::vector<Place> written;
    for (int k = turns.begin; k < turns.end; ++k) {
      for (const Place& place : turners_[k].operands) {
        if (place.is_written) written.push_back(place);
      }
    }
    const auto is_gone = [&](const Place& place) {
      return place.scratch != kNone && last_reader_[place.scratch] < turns.end &&
             place.elements == turners_[turns.begin].parts.elements;
    };
    for (const Place& place : written) {
      const bool may_stay = std::all_of(written.begin(), written.end(), [&](const Place& other) {
        return !Overlap(place, other) || is_gone(other);
      });
      if (may_stay) turns.staying.push_back(place.scratch);
    }
    std::sort(turns.staying.begin(), turns.staying.end());
  }

  const PhysicalGraph& graph_;
  const TaskGroup& group_;
  Compute& compute_;
  std::vector<Turner> turners_;   // by kernel
  std::vector<int> last_reader_;  // a kernel, by scratch
};

}  // namespace

PhysicalGraph TakeTurns(PhysicalGraph graph, const OpRegistry& registry) {
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Compute>() && group.lanes() == 0)
      Turning(graph, registry, graph.group(group.id)).Run();
  }
  return graph;
}

}  // namespace braid::compiler
