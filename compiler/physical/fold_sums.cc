#include "compiler/physical/fold_sums.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::compiler {
namespace {

using Source = OperandRef::Source;

// What the pass is about: `both` takes the product's inputs and then what is added.
struct Pattern {
  std::string_view product, sum, both;
};
constexpr Pattern kPattern = {.product = "matmul", .sum = "add", .both = "matmul_add"};

constexpr size_t kFactors = 2;  // a product's first inputs

// The sums of one group.
class Folding {
 public:
  Folding(const OpRegistry& registry, Compute& compute)
      : registry_(registry),
        compute_(compute),
        readers_(compute.scratch.size(), 0),
        writer_(compute.scratch.size(), kNone),
        is_folded_(compute.kernels.size(), false) {
    int index = 0;
    for (const KernelCall& kernel : compute_.kernels) {
      for (const OperandRef& ref : kernel.inputs) {
        if (ref.source == Source::kScratch) ++readers_[ref.index];
      }
      for (const OperandRef& ref : kernel.outputs) {
        if (ref.source == Source::kScratch) writer_[ref.index] = index;
      }
      ++index;
    }
  }

  void Run() {
    const int kernels = static_cast<int>(compute_.kernels.size());
    for (int sum = 0; sum < kernels; ++sum) {
      if (const int product = ProductOf(sum); product != kNone) Fold(product, sum);
    }
    DropKernels();
    DropScratch();
  }

 private:
  // The last kernel before the sum that it can become one with, or kNone.
  int ProductOf(int sum) const {
    const KernelCall& add = compute_.kernels[sum];
    if (add.op != kPattern.sum || add.inputs.size() != 2) return kNone;
    int found = kNone;
    for (size_t input = 0; input < add.inputs.size(); ++input) {
      if (add.inputs[input].source != Source::kScratch) continue;
      const int writer = writer_[add.inputs[input].index];
      if (writer <= found) continue;
      if (MayFold(compute_.kernels[writer], add, input) && AreUntouched(writer, sum)) {
        found = writer;
      }
    }
    return found;
  }

  // Whether `add`'s input is the product that only it reads, and its other one can be added there.
  bool MayFold(const KernelCall& product, const KernelCall& add, size_t input) const {
    const bool is_product = product.op == kPattern.product;
    if (!is_product && product.op != kPattern.both) return false;
    if (readers_[product.outputs[0].index] != 1) return false;
    const TensorLayout& layout = product.output_layouts[0];
    const TensorLayout& other = add.input_layouts[1 - input];
    if (add.output_layouts[0] != layout || IsPartial(layout) || IsPartial(other)) return false;
    if (is_product && !IsOfOneMatrix(product)) return false;
    const bool is_row = IsRow(other, layout);
    if (!is_row && other != layout) return false;
    for (size_t i = kFactors; i < product.input_layouts.size(); ++i) {
      if (IsRow(product.input_layouts[i], layout) == is_row) return false;  // it has one
    }
    return true;
  }

  static bool IsPartial(const TensorLayout& layout) {
    return layout.micro_batch_sbp.is_partial() ||
           std::any_of(layout.sbp.dims().begin(), layout.sbp.dims().end(),
                       [](const Sbp& sbp) { return sbp.is_partial(); });
  }
  static bool IsOfOneMatrix(const KernelCall& product) {
    const Attrs& attrs = product.attrs;
    const bool is_turned = attrs.Has("transpose_a") && attrs.Bool("transpose_a");
    return product.input_layouts[1].type.shape.rank() == 2 && !is_turned;
  }
  // Sums are legal only if their parts fit, so that the row's layout follows.
  static bool IsRow(const TensorLayout& addend, const TensorLayout& layout) {
    const Shape& shape = layout.type.shape;
    return addend.type == TensorType{layout.type.dtype, {shape[shape.rank() - 1]}};
  }

  // Whether no kernel in (product, sum) writes what the product reads.
  bool AreUntouched(int product, int sum) const {
    const std::vector<OperandRef>& read = compute_.kernels[product].inputs;
    const auto is_read = [&](const OperandRef& ref) {
      return std::find(read.begin(), read.end(), ref) != read.end();
    };
    for (int i = product + 1; i < sum; ++i) {
      if (is_folded_[i]) continue;
      const KernelCall& kernel = compute_.kernels[i];
      if (std::any_of(kernel.outputs.begin(), kernel.outputs.end(), is_read)) return false;
      const OpDef* const def = registry_.Find(kernel.op);
      if (def == nullptr) return false;
      for (const int input : def->mutates()) {
        if (is_read(kernel.inputs[input])) return false;
      }
    }
    return true;
  }

  void Fold(int product, int sum) {
    KernelCall& add = compute_.kernels[sum];
    KernelCall folded = std::move(compute_.kernels[product]);
    const size_t other = add.inputs[0] == folded.outputs[0] ? 1 : 0;
    folded.op = kPattern.both;
    folded.inputs.push_back(add.inputs[other]);
    folded.input_layouts.push_back(add.input_layouts[other]);
    folded.outputs = std::move(add.outputs);
    folded.output_layouts = std::move(add.output_layouts);
    add = std::move(folded);
    is_folded_[product] = true;
  }

  void DropKernels() {
    std::vector<KernelCall> kept;
    for (size_t i = 0; i < is_folded_.size(); ++i) {
      if (!is_folded_[i]) kept.push_back(std::move(compute_.kernels[i]));
    }
    compute_.kernels = std::move(kept);
  }

  // Scratch that nobody writes any more.
  void DropScratch() {
    std::vector<int> moved_to(compute_.scratch.size(), kNone);
    for (const KernelCall& kernel : compute_.kernels) {
      for (const OperandRef& ref : kernel.outputs) {
        if (ref.source == Source::kScratch) moved_to[ref.index] = 0;
      }
    }
    std::vector<Scratch> kept;
    for (size_t i = 0; i < moved_to.size(); ++i) {
      if (moved_to[i] == kNone) continue;
      moved_to[i] = static_cast<int>(kept.size());
      kept.push_back(std::move(compute_.scratch[i]));
    }
    compute_.scratch = std::move(kept);
    for (KernelCall& kernel : compute_.kernels) {
      for (auto* refs : {&kernel.inputs, &kernel.outputs}) {
        for (OperandRef& ref : *refs) {
          if (ref.source == Source::kScratch) ref.index = moved_to[ref.index];
        }
      }
    }
  }

  const OpRegistry& registry_;
  Compute& compute_;
  std::vector<int> readers_;     // how many each scratch has
  std::vector<int> writer_;      // a kernel, by scratch
  std::vector<bool> is_folded_;  // a kernel that another one's place has taken in
};

}  // namespace

PhysicalGraph FoldSums(PhysicalGraph graph, const OpRegistry& registry) {
  for (const TaskGroup& each : graph.groups()) {
    TaskGroup& group = graph.group(each.id);
    if (group.is<Compute>() && graph.kinds.AddToProducts(group.placement)) {
      Folding(registry, std::get<Compute>(group.work)).Run();
    }
  }
  return graph;
}

}  // namespace braid::compiler
