#include "compiler/logical/keep_narrow.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

// What is so much smaller than what it is computed with or from costs nothing to cast.
constexpr int64_t kSmallPart = 8;

class Keeping {
 public:
  Keeping(LogicalGraph& graph, DType compute, const std::vector<OpId>& products,
          const KeepsNarrow& keeps, CastCopies& copies)
      : graph_(graph),
        compute_(compute),
        copies_(copies),
        consumers_(graph.Consumers()),
        uses_(graph.ops().size()),
        narrow_(graph.tensors().size(), false) {
    std::vector<bool> is_product(graph.ops().size(), false);
    for (const OpId id : products) is_product[id] = true;
    std::vector<bool> is_copy(graph.ops().size(), false);
    for (const auto& [copy, reader] : copies.first_readers()) is_copy[copy] = true;
    for (const Op& op : graph.ops()) {
      if (!op.placement.has_value() || !keeps(*op.placement)) continue;
      uses_[op.id] = is_product[op.id] ? UseOfProduct(op) : UseOf(op);
      if (is_copy[op.id]) uses_[op.id] = {.kind = Kind::kCast};
      const std::vector<TensorType>& types = uses_[op.id].types;
      for (size_t i = 0; i < types.size(); ++i) narrow_[op.outputs[i]] = types[i].dtype == compute_;
    }
  }

  void Run() {
    bool changed = true;
    while (changed) {
      changed = false;
      // Backwards, as most reasons go: a chain that ends in a wide reader is done in one round.
      for (auto id = static_cast<TensorId>(narrow_.size()) - 1; id >= 0; --id) {
        if (!narrow_[id] || MayBeNarrow(id)) continue;
        narrow_[id] = false;
        changed = true;
      }
      changed = TieRepeats() || changed;
    }
    const auto count = static_cast<OpId>(uses_.size());
    for (OpId id = 0; id < count; ++id) Narrow(id);
    for (TensorId id = 0; id < static_cast<TensorId>(narrow_.size()); ++id) {
      if (narrow_[id]) SettleReaders(id);
    }
  }

 private:
  enum class Kind : uint8_t {
    kOther,
    kProduct,  // reads narrow copies already
    kInside,   // has products inside: OpDef::NarrowInside
    kFlow,     // works element by element, moves elements, or keeps them narrow (norms, pooling)
    kCast,     // makes a narrow copy
    kSum,      // sums up in f32 what is narrow, all of its `inputs`
    kMakes,    // makes something narrow of what is wide: OpDef::MakesNarrow
  };
  // An op's part in this.
  struct Use {
    Kind kind = Kind::kOther;
    bool says_wide = false;         // attribute dtype says f32 then
    std::vector<int> inputs;        // that are f32 and would be narrow
    std::vector<TensorType> types;  // of the outputs then
  };

  DType TypeOf(TensorId tensor) const { return graph_.type(tensor).dtype; }

  std::vector<TensorType> InputTypes(const Op& op) const {
    std::vector<TensorType> types;
    for (const TensorId input : op.inputs) types.push_back(graph_.type(input));
    return types;
  }

  Use UseOfProduct(const Op& op) const {
    if (SumsOverBatch(op)) return {};
    Use use = {.kind = Kind::kProduct};
    const std::vector<TensorType> inputs = InputTypes(op);
    for (size_t i = 0; i < inputs.size(); ++i) {  // a bias; the others are narrow
      if (inputs[i].dtype == DType::kF32) use.inputs.push_back(static_cast<int>(i));
    }
    Attrs attrs = op.attrs;
    attrs.Set("dtype", compute_);
    return Checked(std::move(use), op, attrs);
  }
  // Gradients of weights: their addends come from devices and micro-batches, and are not rounded.
  bool SumsOverBatch(const Op& op) const {
    const std::vector<TensorType> inputs = InputTypes(op);
    const std::vector<TensorType> outputs = {graph_.type(op.outputs[0])};
    return std::ranges::any_of(DefOf(graph_, op).LegalSignatures({op.attrs, inputs, outputs}, 2),
                               [](const SbpSignature& signature) {
                                 return signature.outputs[0].is_partial() &&
                                        signature.inputs[0] == sbp::S(0);
                               });
  }

  Use UseOf(const Op& op) const {
    const OpDef& def = DefOf(graph_, op);
    const bool makes_one = op.outputs.size() == 1;
    if (op.outputs.empty() || op.attrs.Has("dtype")) return {};
    Use use;
    const std::vector<TensorType> inputs = InputTypes(op);
    if (def.makes_narrow() && TypeOf(op.outputs[0]) == DType::kF32) {
      Attrs attrs = op.attrs;
      attrs.Set("dtype", compute_);
      return Checked({.kind = Kind::kMakes}, op, attrs);
    }
    std::vector<int> floating = def.narrow_inside({op.attrs, inputs});
    if (!floating.empty() && !op.attrs.Has("compute")) {
      use.kind = Kind::kInside;
    } else if (TypeOf(op.outputs[0]) != DType::kF32) {
      return {};
    } else if ((def.is_pointwise() || def.moves_elements()) && makes_one) {
      use.kind = Kind::kFlow;
      floating.resize(inputs.size());
      std::iota(floating.begin(), floating.end(), 0);
    } else if (!def.keeps_narrow().empty()) {
      use.kind = Kind::kFlow;
      floating = def.keeps_narrow();
    }
    if (use.kind == Kind::kOther) return SumsNarrow(op) ? SumOf({0}, /*says_wide=*/true) : Use();
    for (const int input : floating) {
      const bool is_there = input < static_cast<int>(inputs.size());
      if (is_there && inputs[input].dtype == DType::kF32) use.inputs.push_back(input);
    }
    if (use.inputs.empty()) return {};
    if (!def.keeps_narrow().empty() && MakesWide(op, use.inputs)) {
      return SumOf(std::move(use.inputs), /*says_wide=*/false);
    }
    return Checked(std::move(use), op, op.attrs);
  }
  static Use SumOf(std::vector<int> inputs, bool says_wide) {
    return {.kind = Kind::kSum, .says_wide = says_wide, .inputs = std::move(inputs)};
  }

  std::vector<TensorType> TypesNarrowed(const Op& op, const std::vector<int>& narrowed) const {
    std::vector<TensorType> inputs = InputTypes(op);
    for (const int input : narrowed) inputs[input].dtype = compute_;
    return inputs;
  }
  // Whether nothing that it makes of them would be narrow.
  bool MakesWide(const Op& op, const std::vector<int>& narrowed) const {
    const auto types = DefOf(graph_, op).InferTypes({op.attrs, TypesNarrowed(op, narrowed)});
    const auto is_narrow = [](const TensorType& type) { return IsNarrow(type.dtype); };
    return types.ok() && std::ranges::none_of(*types, is_narrow);
  }

  // With what it makes then; of no kind if that is not narrow.
  Use Checked(Use use, const Op& op, const Attrs& attrs) const {
    const std::vector<TensorType> inputs = TypesNarrowed(op, use.inputs);
    const auto types = DefOf(graph_, op).InferTypes({attrs, inputs});
    if (!types.ok() || (*types)[0].dtype != compute_) return {};
    use.types = *types;
    return use;
  }

  bool SumsNarrow(const Op& op) const {
    std::vector<TensorType> inputs = InputTypes(op);
    if (inputs.size() != 1 || op.outputs.size() != 1 || inputs[0].dtype != DType::kF32)
      return false;
    inputs[0].dtype = compute_;
    Attrs attrs = op.attrs;
    attrs.Set("dtype", DType::kF32);
    const auto types = DefOf(graph_, op).InferTypes({attrs, inputs});
    return types.ok() && (*types)[0].dtype == DType::kF32;
  }

  bool IsSmall(TensorId tensor, TensorId beside) const {
    return graph_.type(tensor).shape.num_elements() * kSmallPart <=
           graph_.type(beside).shape.num_elements();
  }

  // Whether the op reads the tensor as it is if that is narrow.
  bool Accepts(OpId id, int input) const {
    const Use& use = uses_[id];
    if (use.kind == Kind::kCast) return true;
    if (use.kind == Kind::kSum) return false;  // SumsUp says it
    if (use.kind == Kind::kFlow && !narrow_[graph_.op(id).outputs[0]]) return false;
    return std::ranges::count(use.inputs, input) > 0;
  }

  // Whether it reads the tensor as it is if all that it sums up is narrow.
  bool SumsUp(OpId id, int input) const {
    const Use& use = uses_[id];
    const Op& op = graph_.op(id);
    return use.kind == Kind::kSum && std::ranges::count(use.inputs, input) > 0 &&
           std::ranges::all_of(use.inputs, [&](int each) { return narrow_[op.inputs[each]]; });
  }
  bool OnlySums(OpId id, int input) const {
    const Op& op = graph_.op(id);
    return SumsUp(id, input) && IsSmall(op.outputs[0], op.inputs[input]);
  }
  // Perhaps spread out again: sums and maxima, which are f32 though what they are of is narrow.
  bool IsSum(TensorId tensor) const {
    const Op* op = &graph_.producer(tensor);
    while (op->inputs.size() == 1 && DefOf(graph_, *op).moves_elements()) {
      op = &graph_.producer(op->inputs[0]);
    }
    return uses_[op->id].kind == Kind::kSum;
  }
  // A number by itself may be out of the narrow type's range, as a sum may be, and its rounding is
  // everywhere.
  bool IsCheap(TensorId tensor, TensorId beside) const {
    return IsSmall(tensor, beside) && graph_.type(tensor).shape.num_elements() > 1 &&
           !IsSum(tensor);
  }

  bool MayBeNarrow(TensorId tensor) const {
    const Op& op = graph_.producer(tensor);
    const Use& use = uses_[op.id];
    if (use.kind == Kind::kInside) return true;  // what needs it wide gets a copy
    bool has_reader = false;
    for (const auto& [id, input] : consumers_[tensor]) {
      if (Accepts(id, input)) {
        has_reader = true;
      } else if (!OnlySums(id, input)) {
        return false;
      }
    }
    if (!has_reader || use.kind != Kind::kFlow) return has_reader;
    return std::ranges::all_of(use.inputs, [&](int input) {
      const TensorId source = op.inputs[input];
      return narrow_[source] || IsCheap(source, tensor) || HasNarrowCopy(source);
    });
  }

  // What is computed again for a gradient is of the type that it had before. Whether anything
  // changed.
  bool TieRepeats() {
    bool changed = false;
    for (const Op& op : graph_.ops()) {
      if (!op.is_again) continue;
      const std::vector<TensorId>& before = graph_.op(op.forward).outputs;
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        if (narrow_[op.outputs[i]] == narrow_[before[i]]) continue;
        narrow_[op.outputs[i]] = narrow_[before[i]] = false;
        changed = true;
      }
    }
    return changed;
  }

  bool HasNarrowCopy(TensorId tensor) const {
    return std::ranges::any_of(consumers_[tensor], [&](const auto& consumer) {
      return uses_[consumer.first].kind == Kind::kCast;
    });
  }

  // Makes the op read and make narrow tensors where it is to.
  void Narrow(OpId id) {
    const Use& use = uses_[id];
    if (use.types.empty() || !narrow_[graph_.op(id).outputs[0]]) return;
    if (use.kind == Kind::kProduct || use.kind == Kind::kMakes) {
      graph_.mutable_op(id).attrs.Set("dtype", compute_);
    }
    for (const int input : use.inputs) {
      const TensorId source = graph_.op(id).inputs[input];
      if (narrow_[source]) continue;
      const TensorId copy = copies_.Of(source, compute_, id);
      graph_.mutable_op(id).inputs[input] = copy;
    }
    for (size_t i = 0; i < use.types.size(); ++i) {
      graph_.SetDType(graph_.op(id).outputs[i], use.types[i].dtype);
    }
  }

  // Who read a copy reads the tensor; who needs it wide reads a copy.
  void SettleReaders(TensorId tensor) {
    for (const auto& [id, input] : consumers_[tensor]) {
      if (uses_[id].kind == Kind::kCast) {
        for (const auto& [reader, at] : consumers_[graph_.op(id).outputs[0]]) {
          graph_.mutable_op(reader).inputs[at] = tensor;
        }
      } else if (SumsUp(id, input)) {
        if (uses_[id].says_wide) graph_.mutable_op(id).attrs.Set("dtype", DType::kF32);
      } else if (!Accepts(id, input)) {
        const TensorId copy = copies_.Of(tensor, DType::kF32, id);
        graph_.mutable_op(id).inputs[input] = copy;
      }
    }
  }

  LogicalGraph& graph_;
  const DType compute_;
  CastCopies& copies_;
  const std::vector<std::vector<std::pair<OpId, int>>> consumers_;
  std::vector<Use> uses_;
  std::vector<bool> narrow_;
};

}  // namespace

void KeepNarrow(LogicalGraph& graph, DType compute, const std::vector<OpId>& products,
                const KeepsNarrow& keeps, CastCopies& copies) {
  Keeping(graph, compute, products, keeps, copies).Run();
}

}  // namespace braid::compiler
