#include "runtime/kernels/cpu/blocked.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

// A blocked operand and its plain copy.
struct Copy {
  int index = 0;
  int64_t planes = 0, space = 0, channels = 0;  // of a block's channels each
  std::vector<char> bytes;

  Copy(int index, const OperandSpec& plain, int64_t block)
      : index(index), channels(compiler::ChannelsInBlock(plain.logical[1], block)) {
    const Shape& shape = plain.shape();
    planes = shape[0] * (shape[1] / channels);
    space = 1;
    for (int axis = 2; axis < shape.rank(); ++axis) space *= shape[axis];
    bytes.resize(BytesOf(plain));
  }
  static int64_t BytesOf(const OperandSpec& plain) {
    return plain.num_elements() * static_cast<int64_t>(SizeOf(plain.dtype));
  }
};

// [rows, columns] to [columns, rows], for each of `planes`.
template <class T>
void TransposePlanes(const void* from, void* to, int64_t planes, int64_t rows, int64_t columns) {
  const T* in = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        out[column * rows + row] = in[row * columns + column];
      }
    }
    in += rows * columns;
    out += rows * columns;
  }
}

void Transpose(const void* from, void* to, int64_t planes, int64_t rows, int64_t columns,
               size_t element) {
  if (element == 1) return TransposePlanes<uint8_t>(from, to, planes, rows, columns);
  if (element == 2) return TransposePlanes<uint16_t>(from, to, planes, rows, columns);
  if (element == 4) return TransposePlanes<uint32_t>(from, to, planes, rows, columns);
  TransposePlanes<uint64_t>(from, to, planes, rows, columns);
}

class UnblockedKernel final : public Kernel {
 public:
  UnblockedKernel(const PlainSpec& plain, std::unique_ptr<Kernel> inner)
      : inner_(std::move(inner)), block_(plain.block) {
    Prepare(plain.spec.inputs, plain.inputs, inputs_, input_sizes_, input_pointers_);
    Prepare(plain.spec.outputs, plain.outputs, outputs_, output_sizes_, output_pointers_);
  }

  absl::Status Run(const KernelRun& run) override {
    std::copy_n(run.inputs, input_pointers_.size(), input_pointers_.begin());
    std::copy_n(run.outputs, output_pointers_.size(), output_pointers_.begin());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Copy& copy = inputs_[i];
      Transpose(run.inputs[copy.index], copy.bytes.data(), copy.planes, copy.space, copy.channels,
                input_sizes_[i]);
      input_pointers_[copy.index] = copy.bytes.data();
    }
    for (Copy& copy : outputs_) output_pointers_[copy.index] = copy.bytes.data();
    KernelRun plain = run;
    plain.inputs = input_pointers_.data();
    plain.outputs = output_pointers_.data();
    BRAID_RETURN_IF_ERROR(inner_->Run(plain));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Copy& copy = outputs_[i];
      Transpose(copy.bytes.data(), run.outputs[copy.index], copy.planes, copy.channels, copy.space,
                output_sizes_[i]);
    }
    return absl::OkStatus();
  }

  static KernelMemory MemoryOf(const PlainSpec& plain, KernelMemory memory_of_inner) {
    memory_of_inner.own +=
        CopyBytes(plain.spec.inputs, plain.inputs) + CopyBytes(plain.spec.outputs, plain.outputs);
    return memory_of_inner;
  }

 private:
  static int64_t CopyBytes(const std::vector<OperandSpec>& operands,
                           const std::vector<bool>& is_blocked) {
    int64_t bytes = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (is_blocked[i]) bytes += Copy::BytesOf(operands[i]);
    }
    return bytes;
  }
  void Prepare(const std::vector<OperandSpec>& operands, const std::vector<bool>& is_blocked,
               std::vector<Copy>& copies, std::vector<size_t>& sizes,
               std::vector<void*>& pointers) const {
    pointers.resize(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!is_blocked[i]) continue;
      copies.emplace_back(static_cast<int>(i), operands[i], block_);
      sizes.push_back(SizeOf(operands[i].dtype));
    }
  }

  std::unique_ptr<Kernel> inner_;
  const int64_t block_;
  std::vector<Copy> inputs_, outputs_;
  std::vector<size_t> input_sizes_, output_sizes_;  // bytes of an element of each copy
  std::vector<void*> input_pointers_, output_pointers_;
};

}  // namespace

KernelFactory Unblocked(KernelFactory factory) {
  return [factory = std::move(factory)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    if (!compiler::HasChannelBlocks(spec.attrs)) return factory.PlanKernel(spec);
    BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(spec));
    BRAID_ASSIGN_OR_RETURN(PlannedKernel inner, factory.PlanKernel(plain.spec));
    if (!plain.any()) return inner;
    const auto make =
        [plain, make_inner = std::move(inner.make)]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> made, make_inner());
      return std::make_unique<UnblockedKernel>(plain, std::move(made));
    };
    return PlannedKernel{.memory = UnblockedKernel::MemoryOf(plain, inner.memory), .make = make};
  };
}

}  // namespace braid::cpu
