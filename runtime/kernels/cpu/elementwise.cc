// Unary and binary arithmetic, comparisons, logic, where, accumulate.
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/strided.h"
#include "runtime/kernels/pointwise_operators.h"

namespace braid::cpu {
namespace {

using simd::BinaryFn;
using simd::BinaryOp;
using simd::CompareOp;
using simd::Form;
using simd::UnaryFn;
using simd::UnaryOp;
using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

std::optional<simd::Type> LoopType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return simd::Type::kF32;
    case DType::kF64:
      return simd::Type::kF64;
    case DType::kI32:
      return simd::Type::kI32;
    case DType::kI64:
      return simd::Type::kI64;
    case DType::kU8:
    case DType::kBool:
      return simd::Type::kU8;
    default:
      return std::nullopt;
  }
}

KernelOr MakeUnary(const KernelSpec& spec, UnaryOp op, double parameter) {
  const auto type = LoopType(spec.inputs[0].dtype);
  const UnaryFn loop = type ? simd::BestLoops<simd::ElementwiseLoops>()
                                  .unary[static_cast<int>(op)][static_cast<int>(*type)]
                            : nullptr;
  if (loop == nullptr || spec.outputs[0].dtype != spec.inputs[0].dtype) {
    return UnsupportedTypes(spec);
  }
  const int64_t n = spec.outputs[0].num_elements();
  const auto bytes = static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
    const auto* x = Input<char>(run, 0) + begin * bytes;
    auto* out = Output<char>(run, 0) + begin * bytes;
    const auto part = [&](int64_t at, int64_t part_bytes) {
      loop(x + at, out + at, part_bytes / bytes, parameter);
    };
    FetchAhead(size * bytes, part, x);
  });
}

// What one loop call sees as long or as one element.
Form FormOf(int64_t a_stride, int64_t b_stride) {
  if (a_stride == 1) return b_stride == 1 ? Form::kVectorVector : Form::kVectorScalar;
  return Form::kScalarVector;
}

// Whether the loop computes so much that what it reads has to be fetched ahead.
bool TakesLong(BinaryOp op) {
  return op == BinaryOp::kGeluTanhGrad || op == BinaryOp::kGeluErfGrad || op == BinaryOp::kBce ||
         op == BinaryOp::kBceWithLogits;
}

KernelOr MakeBinary(const KernelSpec& spec, const BinaryFn (&loops)[simd::kForms],
                    bool takes_long = false) {
  if (loops[0] == nullptr || spec.inputs[0].dtype != spec.inputs[1].dtype) {
    return UnsupportedTypes(spec);
  }
  const Shape& shape = spec.outputs[0].shape();
  BroadcastWalk walk(shape, {spec.inputs[0].shape(), spec.inputs[1].shape()});
  const Form form = FormOf(walk.inner_stride(0), walk.inner_stride(1));
  const BinaryFn loop = loops[static_cast<int>(form)];
  const int64_t n = walk.inner_size();
  const size_t in_size = SizeOf(spec.inputs[0].dtype), out_size = SizeOf(spec.outputs[0].dtype);
  if (walk.is_single() && (n <= 1 || walk.inner_stride(0) + walk.inner_stride(1) > 0)) {
    const size_t a_step = walk.inner_stride(0) * in_size, b_step = walk.inner_stride(1) * in_size;
    const bool fetches = takes_long && form == Form::kVectorVector && in_size == out_size;
    return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
      const auto* a = Input<char>(run, 0) + begin * a_step;
      const auto* b = Input<char>(run, 1) + begin * b_step;
      auto* out = Output<char>(run, 0) + begin * out_size;
      if (!fetches) return loop(a, b, out, size);
      const auto part = [&](int64_t at, int64_t bytes) {
        loop(a + at, b + at, out + at, bytes / static_cast<int64_t>(in_size));
      };
      FetchAhead(size * static_cast<int64_t>(in_size), part, a, b);
    });
  }
  if (walk.inner_stride(0) + walk.inner_stride(1) == 0) {
    // Both are one element for the whole run: one result, repeated.
    const BinaryFn one = loops[0];
    return MakeKernel([=, walk = std::move(walk)](const KernelRun& run) {
      const auto* a = static_cast<const char*>(run.inputs[0]);
      const auto* b = static_cast<const char*>(run.inputs[1]);
      auto* out = static_cast<char*>(run.outputs[0]);
      walk.ForEachRun([&](int64_t at, const int64_t* in) {
        char value[8];
        one(a + in[0] * in_size, b + in[1] * in_size, value, 1);
        for (int64_t i = 0; i < n; ++i) std::memcpy(out + (at + i) * out_size, value, out_size);
      });
    });
  }
  if (walk.has_rows()) {
    const size_t a_row = walk.row_stride(0) * in_size, b_row = walk.row_stride(1) * in_size;
    return MakePointwise(spec.outputs[0].num_elements(), n,
                         [=](const KernelRun& run, int64_t begin, int64_t size) {
                           const int64_t first = begin / n;
                           const auto* a = Input<char>(run, 0) + first * a_row;
                           const auto* b = Input<char>(run, 1) + first * b_row;
                           auto* out = Output<char>(run, 0) + begin * out_size;
                           for (int64_t at = 0; at < size; at += n, a += a_row, b += b_row) {
                             loop(a, b, out + at * out_size, n);
                           }
                         });
  }
  return MakeKernel([=, walk = std::move(walk)](const KernelRun& run) {
    const auto* a = static_cast<const char*>(run.inputs[0]);
    const auto* b = static_cast<const char*>(run.inputs[1]);
    auto* out = static_cast<char*>(run.outputs[0]);
    walk.ForEachRun([&](int64_t at, const int64_t* in) {
      loop(a + in[0] * in_size, b + in[1] * in_size, out + at * out_size, n);
    });
  });
}

KernelOr MakeArithmetic(const KernelSpec& spec, BinaryOp op) {
  const auto type = LoopType(spec.inputs[0].dtype);
  if (!type || spec.outputs[0].dtype != spec.inputs[0].dtype ||
      spec.inputs[0].dtype == DType::kBool) {
    return UnsupportedTypes(spec);
  }
  return MakeBinary(spec,
                    simd::BestLoops<simd::ElementwiseLoops>()
                        .binary[static_cast<int>(op)][static_cast<int>(*type)],
                    TakesLong(op));
}

KernelOr MakeCompare(const KernelSpec& spec, CompareOp op) {
  const auto type = LoopType(spec.inputs[0].dtype);
  if (!type || spec.outputs[0].dtype != DType::kBool) return UnsupportedTypes(spec);
  return MakeBinary(spec, simd::BestLoops<simd::ElementwiseLoops>()
                              .compare[static_cast<int>(op)][static_cast<int>(*type)]);
}

template <class Op>
void LogicLoop(const void* a_data, const void* b_data, void* out_data, int64_t n, int64_t a_stride,
               int64_t b_stride) {
  const auto* a = static_cast<const uint8_t*>(a_data);
  const auto* b = static_cast<const uint8_t*>(b_data);
  auto* out = static_cast<uint8_t*>(out_data);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = Op()(a[i * a_stride] != 0, b[i * b_stride] != 0) ? 1 : 0;
  }
}

struct And {
  bool operator()(bool a, bool b) const { return a && b; }
};
struct Or {
  bool operator()(bool a, bool b) const { return a || b; }
};
struct Xor {
  bool operator()(bool a, bool b) const { return a != b; }
};

template <class Op>
KernelOr MakeLogic(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kBool || spec.inputs[1].dtype != DType::kBool) {
    return UnsupportedTypes(spec);
  }
  static constexpr BinaryFn kLoops[simd::kForms] = {
      [](const void* a, const void* b, void* out, int64_t n) { LogicLoop<Op>(a, b, out, n, 1, 1); },
      [](const void* a, const void* b, void* out, int64_t n) { LogicLoop<Op>(a, b, out, n, 1, 0); },
      [](const void* a, const void* b, void* out, int64_t n) { LogicLoop<Op>(a, b, out, n, 0, 1); },
  };
  return MakeBinary(spec, kLoops);
}

KernelOr MakeLogicalNot(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kBool) return UnsupportedTypes(spec);
  const int64_t n = spec.outputs[0].num_elements();
  return MakePointwise(n, [](const KernelRun& run, int64_t begin, int64_t size) {
    const auto* x = Input<uint8_t>(run, 0);
    auto* out = Output<uint8_t>(run, 0);
    for (int64_t i = begin; i < begin + size; ++i) out[i] = x[i] == 0 ? 1 : 0;
  });
}

template <class Bits>
KernelOr MakeWhereOf(const KernelSpec& spec) {
  BroadcastWalk walk(spec.outputs[0].shape(),
                     {spec.inputs[0].shape(), spec.inputs[1].shape(), spec.inputs[2].shape()});
  return MakeKernel([walk = std::move(walk)](const KernelRun& run) {
    const auto* condition = Input<uint8_t>(run, 0);
    const auto* a = Input<Bits>(run, 1);
    const auto* b = Input<Bits>(run, 2);
    auto* out = Output<Bits>(run, 0);
    const int64_t n = walk.inner_size(), c_stride = walk.inner_stride(0);
    const int64_t a_stride = walk.inner_stride(1), b_stride = walk.inner_stride(2);
    walk.ForEachRun([&](int64_t at, const int64_t* in) {
      const uint8_t* c = condition + in[0];
      const Bits *x = a + in[1], *y = b + in[2];
      Bits* to = out + at;
      if (c_stride + a_stride + b_stride == 3) {
        for (int64_t i = 0; i < n; ++i) to[i] = c[i] != 0 ? x[i] : y[i];
      } else {
        for (int64_t i = 0; i < n; ++i) {
          to[i] = c[i * c_stride] != 0 ? x[i * a_stride] : y[i * b_stride];
        }
      }
    });
  });
}

KernelOr MakeWhere(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  if (spec.inputs[0].dtype != DType::kBool || spec.inputs[1].dtype != dtype ||
      spec.inputs[2].dtype != dtype) {
    return UnsupportedTypes(spec);
  }
  switch (SizeOf(dtype)) {
    case 1:
      return MakeWhereOf<uint8_t>(spec);
    case 2:
      return MakeWhereOf<uint16_t>(spec);
    case 4:
      return MakeWhereOf<uint32_t>(spec);
    default:
      return MakeWhereOf<uint64_t>(spec);
  }
}

KernelOr MakeAccumulate(const KernelSpec& spec) {
  const auto type = LoopType(spec.inputs[0].dtype);
  if (!type || spec.inputs[0].dtype == DType::kBool) return UnsupportedTypes(spec);
  const BinaryFn add = simd::BestLoops<simd::ElementwiseLoops>()
                           .binary[static_cast<int>(BinaryOp::kAdd)][static_cast<int>(*type)][0];
  const int64_t n = spec.outputs[0].num_elements();
  const int64_t bytes = n * static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakeKernel([=](const KernelRun& run) {
    if (run.micro_batch > 0) {
      add(run.outputs[0], run.inputs[0], run.outputs[0], n);
    } else if (run.outputs[0] != run.inputs[0]) {
      std::memcpy(run.outputs[0], run.inputs[0], bytes);
    }
  });
}

// A narrow sum is kept as it is stored: out is both read and written.
KernelFactory NarrowAccumulate() {
  return [](const KernelSpec& spec) -> KernelOr {
    const DType dtype = spec.inputs[0].dtype;
    if (dtype != DType::kBF16 && dtype != DType::kF16) return MakeAccumulate(spec);
    const auto& loops = simd::BestLoops<simd::ElementwiseLoops>();
    const auto load = dtype == DType::kBF16 ? loops.bf16_to_f32 : loops.f16_to_f32;
    const auto store = dtype == DType::kBF16 ? loops.f32_to_bf16 : loops.f32_to_f16;
    const BinaryFn add = loops.binary[static_cast<int>(BinaryOp::kAdd)][0][0];
    const int64_t n = spec.outputs[0].num_elements();
    return MakeKernel([=](const KernelRun& run) {
      const auto* x = Input<uint16_t>(run, 0);
      auto* out = Output<uint16_t>(run, 0);
      if (run.micro_batch == 0) {
        if (out != x) std::memcpy(out, x, n * sizeof(uint16_t));
        return;
      }
      constexpr int64_t kChunk = 512;
      float a[kChunk], b[kChunk];
      for (int64_t i = 0; i < n; i += kChunk) {
        const int64_t size = std::min(kChunk, n - i);
        load(out + i, a, size);
        load(x + i, b, size);
        add(a, b, a, size);
        store(a, out + i, size);
      }
    });
  };
}

}  // namespace

absl::Status RegisterElementwiseKernels(KernelRegistry& registry) {
  for (const NamedUnary& unary : kNamedUnaries) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        unary.name, Widened([op = unary.op](const KernelSpec& s) { return MakeUnary(s, op, 0); })));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("scale", Widened([](const KernelSpec& s) {
                                            return MakeUnary(s, UnaryOp::kScale,
                                                             s.attrs.Double("factor"));
                                          })));
  BRAID_RETURN_IF_ERROR(registry.Register("add_scalar", Widened([](const KernelSpec& s) {
                                            return MakeUnary(s, UnaryOp::kAddScalar,
                                                             s.attrs.Double("value"));
                                          })));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "gelu", Widened([](const KernelSpec& s) {
        return MakeUnary(s, Flag(s.attrs, "approximate") ? UnaryOp::kGeluTanh : UnaryOp::kGeluErf,
                         0);
      })));
  for (const NamedBinary& binary : kNamedBinaries) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        binary.name,
        Widened([op = binary.op](const KernelSpec& s) { return MakeArithmetic(s, op); })));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("gelu_grad", Widened([](const KernelSpec& s) {
                                            return MakeArithmetic(s, Flag(s.attrs, "approximate")
                                                                         ? BinaryOp::kGeluTanhGrad
                                                                         : BinaryOp::kGeluErfGrad);
                                          })));
  for (const NamedCompare& compare : kNamedCompares) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        compare.name,
        Widened([op = compare.op](const KernelSpec& s) { return MakeCompare(s, op); })));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("logical_and", MakeLogic<And>));
  BRAID_RETURN_IF_ERROR(registry.Register("logical_or", MakeLogic<Or>));
  BRAID_RETURN_IF_ERROR(registry.Register("logical_xor", MakeLogic<Xor>));
  BRAID_RETURN_IF_ERROR(registry.Register("logical_not", MakeLogicalNot));
  BRAID_RETURN_IF_ERROR(registry.Register("where", MakeWhere));
  return registry.Register("accumulate", NarrowAccumulate());
}

}  // namespace braid::cpu
