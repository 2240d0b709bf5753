#include "runtime/actions/call_turns.h"

#include <algorithm>
#include <utility>

#include "graph/dtype.h"
#include "graph/op_parts.h"

namespace braid {
namespace {

bool AllHaveParts(std::span<Kernel* const> kernels, int64_t elements, int64_t part) {
  return std::all_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
    const OpParts parts = kernel->parts();
    return parts.elements == elements && elements > 0 && part > 0 && part % parts.step == 0;
  });
}

class StayingOperands {
 public:
  StayingOperands(const compiler::Turns& turns, int64_t elements)
      : turns_(turns), elements_(elements) {}

  void Add(const std::vector<plan::Operand>& operands, size_t first) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].source != plan::Operand::Source::kScratch) continue;
      const auto scratch = static_cast<int>(operands[i].index);
      if (!std::binary_search(turns_.staying.begin(), turns_.staying.end(), scratch)) continue;
      const plan::Shard& shard = operands[i].shard;
      if (shard.region.size.num_elements() != elements_) fit_ = false;
      found_.push_back({first + i, static_cast<int64_t>(SizeOf(shard.layout->type.dtype))});
    }
  }
  bool fit() const { return fit_; }
  std::vector<StayingOperand>& found() { return found_; }

 private:
  const compiler::Turns& turns_;
  const int64_t elements_;
  std::vector<StayingOperand> found_;
  bool fit_ = true;
};

}  // namespace

std::vector<CallTurns> TurnsOf(const plan::Compute& compute, std::span<Kernel* const> kernels) {
  std::vector<CallTurns> result;
  size_t call = 0, operand = 0;
  for (const compiler::Turns& turns : compute.turns) {
    CallTurns one = {.begin = static_cast<size_t>(turns.begin),
                     .end = static_cast<size_t>(turns.end),
                     .elements = kernels[turns.begin]->parts().elements,
                     .part = turns.part,
                     .staying = {}};
    StayingOperands staying(turns, one.elements);
    for (; call < one.end; ++call) {
      const plan::Kernel& kernel = compute.kernels[call];
      if (call >= one.begin) {
        staying.Add(kernel.inputs, operand);
        staying.Add(kernel.outputs, operand + kernel.inputs.size());
      }
      operand += kernel.inputs.size() + kernel.outputs.size();
    }
    one.staying = std::move(staying.found());
    const auto of_turns = kernels.subspan(one.begin, one.end - one.begin);
    if (AllHaveParts(of_turns, one.elements, one.part) && staying.fit()) {
      result.push_back(std::move(one));
    }
  }
  return result;
}

}  // namespace braid
