#include "runtime/kernels/cuda/pointwise_fuser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/fused_text.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/pointwise_piece.h"

namespace braid::cuda {
namespace {

constexpr size_t kMostSteps = 32;

bool Overlap(const PlacedOperand& a, const PlacedOperand& b) {
  return a.area == b.area && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}
bool AreSame(const PlacedOperand& a, const PlacedOperand& b) {
  return a.area == b.area && a.offset == b.offset && a.bytes == b.bytes;
}

// An operand of the kernel, as KernelRun of all calls has it.
struct Operand {
  size_t index = 0;  // of the inputs or the outputs
  uint64_t bytes = 0;
  bool is_dense = true;  // each thread reads what it writes, if that is the same memory
};

// The calls, as one kernel.
class FusedKernel final : public Kernel {
 public:
  struct Parts {
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<size_t> inputs;  // how many each of these has; each has one output
    std::vector<Operand> reads, writes;
    int64_t groups = 0;
    bool is_aligned = false;  // pointers must be multiples of 16
    int program = 0;
  };
  FusedKernel(Parts parts, Programs* programs) : parts_(std::move(parts)), programs_(*programs) {}

  absl::Status Run(const KernelRun& run) override {
    if (!has_looked_) kernel_ = programs_.Find(parts_.program);
    has_looked_ = true;
    if (kernel_ == nullptr || !Fits(run)) return RunEach(run);
    FusedOperands operands = {};
    void** at = operands.at;
    for (const Operand& read : parts_.reads) *at++ = run.inputs[read.index];
    for (const Operand& write : parts_.writes) *at++ = run.outputs[write.index];
    const Queue queue = QueueOf(run);
    return LaunchStatus(
        run, programs_.Launch(queue, kernel_, BlocksFor(queue, parts_.groups), operands));
  }
  bool is_repeatable() const override {
    return std::ranges::all_of(parts_.kernels,
                               [](const auto& kernel) { return kernel->is_repeatable(); });
  }

 private:
  // Whether what is written is memory of its own, or read at the same place by the same thread.
  bool Fits(const KernelRun& run) const {
    const auto overlap = [](const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
      const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
      return x < y + b_bytes && y < x + a_bytes;
    };
    const auto is_aligned = [&](const void* at) {
      return !parts_.is_aligned || reinterpret_cast<uintptr_t>(at) % 16 == 0;
    };
    for (const Operand& read : parts_.reads) {
      if (!is_aligned(run.inputs[read.index])) return false;
    }
    for (size_t i = 0; i < parts_.writes.size(); ++i) {
      const Operand& write = parts_.writes[i];
      const void* const to = run.outputs[write.index];
      if (!is_aligned(to)) return false;
      for (const Operand& read : parts_.reads) {
        const void* const from = run.inputs[read.index];
        const bool is_same = from == to && read.bytes == write.bytes && read.is_dense;
        if (!is_same && overlap(from, read.bytes, to, write.bytes)) return false;
      }
      for (size_t k = 0; k < i; ++k) {
        const Operand& other = parts_.writes[k];
        if (overlap(run.outputs[other.index], other.bytes, to, write.bytes)) return false;
      }
    }
    return true;
  }

  absl::Status RunEach(const KernelRun& run) {
    KernelRun each = run;
    for (size_t i = 0; i < parts_.kernels.size(); ++i) {
      BRAID_RETURN_IF_ERROR(parts_.kernels[i]->Run(each));
      each.inputs += parts_.inputs[i];
      ++each.outputs;
    }
    return absl::OkStatus();
  }

  const Parts parts_;
  Programs& programs_;
  bool has_looked_ = false;
  void* kernel_ = nullptr;
};

// Calls that may become one kernel, the first of which is `begin`.
class Group {
 public:
  Group(const std::vector<PlacedCall>& calls, size_t begin)
      : calls_(calls), begin_(begin), end_(begin) {}

  size_t end() const { return end_; }

  // Whether the next call is one of them now.
  bool Take() {
    const PointwisePiece* const piece = end_ < calls_.size() ? PieceOf(calls_[end_]) : nullptr;
    if (piece == nullptr || end_ - begin_ == kMostSteps) return false;
    const PlacedCall& call = calls_[end_];
    if (!steps_.empty() && piece->walk.elements != steps_[0].piece->walk.elements) return false;
    std::vector<Read> reads = reads_;
    FusedStep step = {.piece = piece};
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      const std::optional<FusedInput> input = InputOf(*piece, call.inputs[k], k, reads);
      if (!input.has_value()) return false;
      step.inputs.push_back(*input);
    }
    if (!MayWrite(call.outputs[0], reads)) return false;
    if (reads.size() + steps_.size() + 1 > kMostFusedOperands) return false;
    reads_ = std::move(reads);
    steps_.push_back(std::move(step));
    inputs_ += call.inputs.size();
    ++end_;
    return true;
  }

  // Nobody takes calls any more. Null if they are better by themselves.
  std::unique_ptr<Kernel> Make(std::vector<PlacedCall>& calls, Programs& programs) {
    FusedKernel::Parts parts;
    for (size_t i = begin_; i < end_; ++i) {
      if (!IsStored(i)) continue;
      steps_[i - begin_].output = static_cast<int>(parts.writes.size());
      parts.writes.push_back({.index = i - begin_, .bytes = calls_[i].outputs[0].bytes});
    }
    if (end_ - begin_ < 2 || parts.writes.empty()) return nullptr;
    std::vector<FusedRead> reads;
    for (const Read& read : reads_) {
      reads.push_back(read.as);
      parts.reads.push_back(
          {.index = read.index, .bytes = read.place.bytes, .is_dense = read.is_dense});
    }
    const FusedKernelText text = TextOf(reads, steps_);
    parts.groups = text.groups;
    parts.is_aligned = text.group > 1;
    parts.program = programs.Add(text.text);
    for (size_t i = begin_; i < end_; ++i) {
      parts.inputs.push_back(calls_[i].inputs.size());
      parts.kernels.push_back(std::move(calls[i].kernel));
    }
    return std::make_unique<FusedKernel>(std::move(parts), &programs);
  }

 private:
  struct Read {
    PlacedOperand place;
    FusedRead as;
    size_t index = 0;  // of all inputs of the calls
    bool is_dense = true;
  };

  static const PointwisePiece* PieceOf(const PlacedCall& call) {
    if (!call.may_fuse || call.outputs.size() != 1) return nullptr;
    const auto* kernel = dynamic_cast<const PointwiseKernel*>(call.kernel.get());
    if (kernel == nullptr || kernel->piece().function.empty()) return nullptr;
    return kernel->piece().walk.elements > 0 ? &kernel->piece() : nullptr;
  }

  // nullopt: it reads what the calls before it make elsewhere than it stands itself.
  std::optional<FusedInput> InputOf(const PointwisePiece& piece, const PlacedOperand& place,
                                    size_t input, std::vector<Read>& reads) const {
    const int operand = static_cast<int>(input) + 1;
    const bool is_dense = IsDense(piece.walk, operand);
    for (size_t i = end_; i > begin_; --i) {
      const PlacedOperand& made = calls_[i - 1].outputs[0];
      if (!Overlap(made, place)) continue;
      const FusedStep& step = steps_[i - 1 - begin_];
      if (!AreSame(made, place) || !is_dense || step.piece->output != piece.inputs[input]) {
        return std::nullopt;
      }
      return FusedInput{.step = static_cast<int>(i - 1 - begin_)};
    }
    for (size_t k = 0; k < reads.size(); ++k) {
      if (AreSame(reads[k].place, place) && reads[k].is_dense && is_dense &&
          reads[k].as.piece->inputs[reads[k].as.input] == piece.inputs[input]) {
        return FusedInput{.operand = static_cast<int>(k)};
      }
    }
    reads.push_back({.place = place,
                     .as = {.piece = &piece, .input = static_cast<int>(input)},
                     .index = inputs_ + input,
                     .is_dense = is_dense});
    return FusedInput{.operand = static_cast<int>(reads.size()) - 1};
  }

  // Not over what others still have to read or have made, unless that is at the same place.
  bool MayWrite(const PlacedOperand& place, const std::vector<Read>& reads) const {
    for (const Read& read : reads) {
      if (Overlap(read.place, place) && !(AreSame(read.place, place) && read.is_dense))
        return false;
    }
    for (size_t i = begin_; i < end_; ++i) {
      const PlacedOperand& made = calls_[i].outputs[0];
      if (Overlap(made, place) && !AreSame(made, place)) return false;
    }
    return true;
  }

  // Whether anybody but the group reads what the call makes.
  bool IsStored(size_t call) const {
    const PlacedOperand& made = calls_[call].outputs[0];
    const auto covers = [&](size_t i) {
      return std::ranges::any_of(calls_[i].outputs, [&](const PlacedOperand& output) {
        return output.area == made.area && output.offset <= made.offset &&
               made.offset + made.bytes <= output.offset + output.bytes;
      });
    };
    for (size_t i = call + 1; i < end_; ++i) {
      if (covers(i)) return false;  // what was made before is gone
    }
    if (!made.is_scratch) return true;
    for (size_t i = end_; i < calls_.size(); ++i) {
      for (const PlacedOperand& input : calls_[i].inputs) {
        if (Overlap(input, made)) return true;
      }
      if (covers(i)) return false;
    }
    return false;
  }

  const std::vector<PlacedCall>& calls_;
  const size_t begin_;
  size_t end_;
  size_t inputs_ = 0;  // of the calls so far
  std::vector<Read> reads_;
  std::vector<FusedStep> steps_;
};

}  // namespace

std::vector<FusedCalls> PointwiseFuser::Fuse(std::vector<PlacedCall>& calls) {
  std::vector<FusedCalls> fused;
  for (size_t begin = 0; begin < calls.size();) {
    Group group(calls, begin);
    while (group.Take()) {
    }
    const size_t end = std::max(group.end(), begin + 1);
    if (std::unique_ptr<Kernel> kernel = group.Make(calls, programs_); kernel != nullptr) {
      fused.push_back({.begin = begin, .end = end, .kernel = std::move(kernel)});
    }
    begin = end;
  }
  return fused;
}

}  // namespace braid::cuda
