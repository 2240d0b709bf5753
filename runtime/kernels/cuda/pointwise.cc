// Of KernelSpecs: what works element by element, with broadcasting.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cast_encoding.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/piece_text.h"
#include "runtime/kernels/cuda/pointwise_piece.h"
#include "runtime/kernels/pointwise_operators.h"

namespace braid::cuda {
namespace {

using simd::BinaryOp;
using simd::UnaryOp;
using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The types that a function takes: floating ones, i32 and i64; the floating ones; i32, i64 and u8.
enum class Takes { kNumbers, kFloats, kIntegers };

#define BRAID_NUMBERS(name, Op) Takes::kNumbers,
#define BRAID_FLOATS(name, Op) Takes::kFloats,
#define BRAID_INTEGERS(name, Op) Takes::kIntegers,
constexpr Takes kUnaryTakes[] = {
    BRAID_UNARY_OPS(BRAID_NUMBERS, BRAID_FLOATS, BRAID_INTEGERS, BRAID_FLOATS)};
constexpr Takes kBinaryTakes[] = {BRAID_BINARY_OPS(BRAID_NUMBERS, BRAID_INTEGERS, BRAID_FLOATS)};
#undef BRAID_NUMBERS
#undef BRAID_FLOATS
#undef BRAID_INTEGERS

bool Accepts(Takes takes, DType compute) {
  if (IsFloating(compute)) return takes != Takes::kIntegers;
  if (IsIndexType(compute)) return takes != Takes::kFloats;
  return compute == DType::kU8 && takes == Takes::kIntegers;
}

// PointwiseLaunch::compute.
DType ComputeType(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
    case DType::kF16:
      return DType::kF32;
    case DType::kBool:
      return DType::kU8;
    default:
      return dtype;
  }
}

// Of where, which only moves elements.
DType BitsType(DType dtype) {
  switch (SizeOf(dtype)) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kF16;
    case 4:
      return DType::kI32;
    default:
      return DType::kI64;
  }
}

absl::StatusOr<PointwiseLaunch> LaunchOf(const KernelSpec& spec, int op) {
  PointwiseLaunch launch = {.op = op, .compute = ComputeType(spec.inputs[0].dtype)};
  launch.out_type = spec.outputs[0].dtype;
  std::vector<Shape> shapes;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    launch.types[i] = spec.inputs[i].dtype;
    shapes.push_back(spec.inputs[i].shape());
  }
  BRAID_ASSIGN_OR_RETURN(launch.walk, BroadcastWalk(spec.outputs[0].shape(), shapes));
  return launch;
}

// `text`: PointwisePiece::function.
std::unique_ptr<Kernel> MakePointwise(PointwiseFn function, const PointwiseLaunch& launch,
                                      const KernelSpec& spec, std::string text) {
  PointwisePiece piece = {.function = std::move(text), .walk = launch.walk};
  bool is_computed = true;
  for (const OperandSpec& input : spec.inputs) {
    piece.inputs.push_back(input.dtype);
    piece.takes.push_back(FusedType(input.dtype));
    is_computed = is_computed && piece.takes.back() != DType::kBool;
  }
  piece.output = spec.outputs[0].dtype;
  piece.makes = FusedType(piece.output);
  if (!is_computed || piece.makes == DType::kBool) piece.function.clear();
  return std::make_unique<PointwiseKernel>(function, launch, std::move(piece));
}

KernelOr MakeOf(PointwiseFn function, const KernelSpec& spec, int op, std::string text,
                const simd::ActivationParameters& parameters = {}) {
  BRAID_ASSIGN_OR_RETURN(PointwiseLaunch launch, LaunchOf(spec, op));
  launch.parameters = parameters;
  return MakePointwise(function, launch, spec, std::move(text));
}

// Whether all operands are computed with as one type.
bool HasOneType(const KernelSpec& spec) {
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) {
      if (ComputeType(operand.dtype) != ComputeType(spec.inputs[0].dtype)) return false;
    }
  }
  return true;
}

KernelOr MakeUnary(const PointwiseTable& table, const KernelSpec& spec, UnaryOp op,
                   double parameter = 0) {
  const int index = static_cast<int>(op);
  if (!HasOneType(spec) || !Accepts(kUnaryTakes[index], ComputeType(spec.inputs[0].dtype))) {
    return UnsupportedTypes(spec);
  }
  return MakeOf(table.unary, spec, index,
                UnaryText(op, ComputeType(spec.inputs[0].dtype), parameter), {.a = parameter});
}

KernelOr MakeBinary(const PointwiseTable& table, const KernelSpec& spec, BinaryOp op) {
  const DType dtype = spec.inputs[0].dtype;
  const Takes takes = kBinaryTakes[static_cast<int>(op)];
  const bool is_supported =
      dtype == DType::kU8 ? takes != Takes::kFloats : Accepts(takes, ComputeType(dtype));
  if (!HasOneType(spec) || dtype == DType::kBool || !is_supported) return UnsupportedTypes(spec);
  return MakeOf(table.binary, spec, static_cast<int>(op), BinaryText(op));
}

KernelOr MakeCompare(const PointwiseTable& table, const KernelSpec& spec, simd::CompareOp op) {
  const DType compute = ComputeType(spec.inputs[0].dtype);
  const bool are_alike = compute == ComputeType(spec.inputs[1].dtype);
  const bool is_compared = IsFloating(compute) || IsIndexType(compute) || compute == DType::kU8;
  if (!are_alike || !is_compared || spec.outputs[0].dtype != DType::kBool) {
    return UnsupportedTypes(spec);
  }
  return MakeOf(table.compare, spec, static_cast<int>(op), CompareText(op));
}

KernelOr MakeLogic(const PointwiseTable& table, const KernelSpec& spec, LogicOp op) {
  for (const OperandSpec& input : spec.inputs) {
    if (input.dtype != DType::kBool) return UnsupportedTypes(spec);
  }
  return MakeOf(table.logic, spec, static_cast<int>(op), LogicText(op));
}

KernelOr MakeWhere(const PointwiseTable& table, const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  if (spec.inputs[0].dtype != DType::kBool || spec.inputs[1].dtype != dtype ||
      spec.inputs[2].dtype != dtype) {
    return UnsupportedTypes(spec);
  }
  BRAID_ASSIGN_OR_RETURN(PointwiseLaunch launch, LaunchOf(spec, 0));
  launch.compute = BitsType(dtype);
  return MakePointwise(table.where, launch, spec, "$0 != 0 ? $1 : $2");
}

std::unique_ptr<Kernel> MakeCopy(const PointwiseTable& table, const KernelSpec& spec) {
  const int64_t bytes =
      spec.outputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakeKernel([bytes, copy = table.copy](const Queue& queue, const KernelRun& run) {
    return copy(queue, {.from = run.inputs[0], .to = run.outputs[0], .bytes = bytes});
  });
}

KernelOr MakeCast(const PointwiseTable& table, const KernelSpec& spec) {
  if (spec.inputs[0].dtype == spec.outputs[0].dtype) return MakeCopy(table, spec);
  BRAID_ASSIGN_OR_RETURN(PointwiseLaunch launch, LaunchOf(spec, 0));
  launch.encoding = EncodingOf(spec.attrs);
  return MakePointwise(table.cast, launch, spec,
                       CastText(spec.inputs[0].dtype, spec.outputs[0].dtype));
}

// The output, which lasts from act to act, and the input are added in all acts but the first.
KernelOr MakeAccumulate(const PointwiseTable& table, const KernelSpec& spec) {
  if (spec.inputs[0].dtype == DType::kBool || spec.outputs[0].dtype != spec.inputs[0].dtype) {
    return UnsupportedTypes(spec);
  }
  KernelSpec sum = spec;
  sum.inputs = {spec.outputs[0], spec.inputs[0]};
  BRAID_ASSIGN_OR_RETURN(const PointwiseLaunch launch,
                         LaunchOf(sum, static_cast<int>(BinaryOp::kAdd)));
  const int64_t bytes =
      spec.outputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakeKernel(
      [=, add = table.binary, copy = table.copy](const Queue& queue, const KernelRun& run) {
        if (run.micro_batch == 0) {
          return copy(queue, {.from = run.inputs[0], .to = run.outputs[0], .bytes = bytes});
        }
        PointwiseLaunch now = launch;
        now.output = run.outputs[0];
        now.inputs[0] = run.outputs[0];
        now.inputs[1] = run.inputs[0];
        return add(queue, now);
      });
}

template <class T>
KernelOr MakeIntegerClip(const PointwiseTable& table, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(PointwiseLaunch launch, LaunchOf(spec, 0));
  launch.low = NearestTo<T>(std::ceil(spec.attrs.Double("low")));
  launch.high = NearestTo<T>(std::floor(spec.attrs.Double("high")));
  return MakePointwise(table.integer_clip, launch, spec, "");
}

KernelOr MakeActivation(const PointwiseTable& table, const KernelSpec& spec,
                        const NamedActivation& activation) {
  if (!HasOneType(spec)) return UnsupportedTypes(spec);
  if (activation.op == simd::ActivationOp::kClip) {
    switch (spec.inputs[0].dtype) {
      case DType::kI32:
        return MakeIntegerClip<int32_t>(table, spec);
      case DType::kI64:
        return MakeIntegerClip<int64_t>(table, spec);
      case DType::kU8:
        return MakeIntegerClip<uint8_t>(table, spec);
      default:
        break;
    }
  }
  if (!IsFloating(spec.inputs[0].dtype)) return UnsupportedTypes(spec);
  const simd::ActivationParameters parameters = ParametersOf(activation, spec.attrs);
  return MakeOf(table.activation, spec, static_cast<int>(activation.op),
                ActivationText(activation.op, ComputeType(spec.inputs[0].dtype), parameters),
                parameters);
}

KernelOr MakeActivationGrad(const PointwiseTable& table, const KernelSpec& spec,
                            const NamedActivation& activation) {
  if (!HasOneType(spec) || !IsFloating(spec.inputs[0].dtype)) return UnsupportedTypes(spec);
  const simd::ActivationParameters parameters = ParametersOf(activation, spec.attrs);
  return MakeOf(table.activation_grad, spec, static_cast<int>(activation.op),
                ActivationGradText(activation.op, ComputeType(spec.inputs[0].dtype), parameters),
                parameters);
}

KernelOr MakeTest(const PointwiseTable& table, const KernelSpec& spec, TestOp op) {
  if (!IsFloating(spec.inputs[0].dtype)) return UnsupportedTypes(spec);
  simd::ActivationParameters infinities = {};
  if (op == TestOp::kIsInf) {
    // A NaN equals nothing.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    infinities = {.a = Flag(spec.attrs, "positive") ? kInfinity : kNan,
                  .b = Flag(spec.attrs, "negative") ? -kInfinity : kNan};
  }
  return MakeOf(table.test, spec, static_cast<int>(op),
                TestText(op, ComputeType(spec.inputs[0].dtype), infinities), infinities);
}

absl::Status RegisterFunctions(const PointwiseTable& table, KernelRegistry& registry) {
  for (const NamedUnary& unary : kNamedUnaries) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        unary.name,
        [&table, op = unary.op](const KernelSpec& s) { return MakeUnary(table, s, op); }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("scale", [&table](const KernelSpec& s) {
    return MakeUnary(table, s, UnaryOp::kScale, s.attrs.Double("factor"));
  }));
  BRAID_RETURN_IF_ERROR(registry.Register("add_scalar", [&table](const KernelSpec& s) {
    return MakeUnary(table, s, UnaryOp::kAddScalar, s.attrs.Double("value"));
  }));
  BRAID_RETURN_IF_ERROR(registry.Register("gelu", [&table](const KernelSpec& s) {
    return MakeUnary(table, s,
                     Flag(s.attrs, "approximate") ? UnaryOp::kGeluTanh : UnaryOp::kGeluErf);
  }));
  for (const NamedBinary& binary : kNamedBinaries) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        binary.name,
        [&table, op = binary.op](const KernelSpec& s) { return MakeBinary(table, s, op); }));
  }
  return registry.Register("gelu_grad", [&table](const KernelSpec& s) {
    return MakeBinary(
        table, s, Flag(s.attrs, "approximate") ? BinaryOp::kGeluTanhGrad : BinaryOp::kGeluErfGrad);
  });
}

absl::Status RegisterActivations(const PointwiseTable& table, KernelRegistry& registry) {
  for (const NamedActivation& activation : kNamedActivations) {
    BRAID_RETURN_IF_ERROR(
        registry.Register(activation.name, [&table, activation](const KernelSpec& s) {
          return MakeActivation(table, s, activation);
        }));
    BRAID_RETURN_IF_ERROR(registry.Register(std::string(activation.name) + "_grad",
                                            [&table, activation](const KernelSpec& s) {
                                              return MakeActivationGrad(table, s, activation);
                                            }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register(
      "is_nan", [&table](const KernelSpec& s) { return MakeTest(table, s, TestOp::kIsNan); }));
  return registry.Register(
      "is_inf", [&table](const KernelSpec& s) { return MakeTest(table, s, TestOp::kIsInf); });
}

}  // namespace

absl::Status RegisterPointwiseKernels(const KernelTable& kernels, KernelRegistry& registry) {
  const PointwiseTable& table = kernels.pointwise;
  BRAID_RETURN_IF_ERROR(RegisterFunctions(table, registry));
  BRAID_RETURN_IF_ERROR(RegisterActivations(table, registry));
  for (const NamedCompare& compare : kNamedCompares) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        compare.name,
        [&table, op = compare.op](const KernelSpec& s) { return MakeCompare(table, s, op); }));
  }
  for (const auto& [name, op] : {std::pair("logical_and", LogicOp::kAnd),
                                 {"logical_or", LogicOp::kOr},
                                 {"logical_xor", LogicOp::kXor},
                                 {"logical_not", LogicOp::kNot}}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        name, [&table, op = op](const KernelSpec& s) { return MakeLogic(table, s, op); }));
  }
  BRAID_RETURN_IF_ERROR(
      registry.Register("where", [&table](const KernelSpec& s) { return MakeWhere(table, s); }));
  BRAID_RETURN_IF_ERROR(
      registry.Register("cast", [&table](const KernelSpec& s) { return MakeCast(table, s); }));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "bit_cast", [&table](const KernelSpec& s) -> KernelOr { return MakeCopy(table, s); }));
  return registry.Register("accumulate",
                           [&table](const KernelSpec& s) { return MakeAccumulate(table, s); });
}

}  // namespace braid::cuda
