#include "runtime/actions/fuse_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

// One area for all that is at fixed addresses, and one for each end of the task.
PlacedOperand Placed(const plan::Operand& operand, const OperandAddress& address) {
  PlacedOperand placed;
  placed.bytes = static_cast<uint64_t>(operand.shard.region.size.num_elements()) *
                 SizeOf(operand.shard.layout->type.dtype);
  placed.is_scratch = operand.source == plan::Operand::Source::kScratch;
  switch (address.kind) {
    case OperandAddress::Kind::kFixed:
      placed.offset = reinterpret_cast<uintptr_t>(address.fixed);
      break;
    case OperandAddress::Kind::kInput:
      placed.area = 1 + 2 * static_cast<int32_t>(address.index);
      placed.offset = address.offset;
      break;
    case OperandAddress::Kind::kOutput:
      placed.area = 2 + 2 * static_cast<int32_t>(address.index);
      placed.offset = address.offset;
      break;
  }
  return placed;
}

// What the calls were, as one.
ComputeCall Joined(std::vector<ComputeCall>& calls, FusedCalls fused) {
  ComputeCall joined;
  joined.kernel = std::move(fused.kernel);
  joined.name = calls[fused.begin].name;
  joined.name.what = absl::StrFormat("%s to %s (%d operators in one kernel)", joined.name.what,
                                     calls[fused.end - 1].name.what, fused.end - fused.begin);
  for (size_t i = fused.begin; i < fused.end; ++i) {
    std::ranges::move(calls[i].inputs, std::back_inserter(joined.inputs));
    std::ranges::move(calls[i].outputs, std::back_inserter(joined.outputs));
    joined.memory.Add(calls[i].memory);
  }
  return joined;
}

}  // namespace

void FuseCalls(const plan::Compute& compute, CallFuser& fuser, std::vector<ComputeCall>& calls) {
  std::vector<PlacedCall> placed;
  for (size_t i = 0; i < calls.size(); ++i) {
    PlacedCall& call = placed.emplace_back();
    call.kernel = std::move(calls[i].kernel);
    call.may_fuse = !calls[i].is_kept;
    const plan::Kernel& kernel = compute.kernels[i];
    for (size_t k = 0; k < kernel.inputs.size(); ++k) {
      call.inputs.push_back(Placed(kernel.inputs[k], calls[i].inputs[k]));
    }
    for (size_t k = 0; k < kernel.outputs.size(); ++k) {
      call.outputs.push_back(Placed(kernel.outputs[k], calls[i].outputs[k]));
    }
  }
  std::vector<FusedCalls> fused = fuser.Fuse(placed);
  std::vector<ComputeCall> fewer;
  auto next = fused.begin();
  for (size_t i = 0; i < calls.size();) {
    if (next != fused.end() && next->begin == i) {
      i = next->end;
      fewer.push_back(Joined(calls, std::move(*next++)));
      continue;
    }
    calls[i].kernel = std::move(placed[i].kernel);
    fewer.push_back(std::move(calls[i++]));
  }
  calls = std::move(fewer);
}

}  // namespace braid
