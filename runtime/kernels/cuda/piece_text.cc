#include "runtime/kernels/cuda/piece_text.h"

#include <bit>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace braid::cuda {
namespace {

#define BRAID_TEXT(name, Op) "fn::" #Op "::",
constexpr const char* kUnaries[] = {
    BRAID_UNARY_OPS(BRAID_TEXT, BRAID_TEXT, BRAID_TEXT, BRAID_TEXT)};
constexpr const char* kBinaries[] = {BRAID_BINARY_OPS(BRAID_TEXT, BRAID_TEXT, BRAID_TEXT)};
constexpr const char* kCompares[] = {BRAID_COMPARE_OPS(BRAID_TEXT)};
constexpr const char* kActivations[] = {BRAID_ACTIVATIONS(BRAID_TEXT)};
#undef BRAID_TEXT

// A number, all of its bits.
std::string NumberText(DType type, double number) {
  return absl::StrFormat("static_cast<%s>(__builtin_bit_cast(double, 0x%016xull))", TypeText(type),
                         std::bit_cast<uint64_t>(number));
}

std::string ConstantsText(DType type, const simd::ActivationParameters& parameters) {
  return absl::StrFormat("fn::Constants<%s>{%s, %s, %s}", TypeText(type),
                         NumberText(type, parameters.a), NumberText(type, parameters.b),
                         NumberText(type, parameters.c));
}

std::string AsByte(const std::string& condition) {
  return absl::StrFormat("static_cast<uint8_t>(%s)", condition);
}

}  // namespace

std::string UnaryText(simd::UnaryOp op, DType type, double parameter) {
  return absl::StrFormat("%sF($0, %s)", kUnaries[static_cast<int>(op)],
                         NumberText(type, parameter));
}
std::string BinaryText(simd::BinaryOp op) {
  return absl::StrFormat("%sF($0, $1)", kBinaries[static_cast<int>(op)]);
}
std::string CompareText(simd::CompareOp op) {
  return AsByte(absl::StrFormat("%sF($0, $1)", kCompares[static_cast<int>(op)]));
}
std::string ActivationText(simd::ActivationOp op, DType type,
                           const simd::ActivationParameters& parameters) {
  return absl::StrFormat("%sF($0, %s)", kActivations[static_cast<int>(op)],
                         ConstantsText(type, parameters));
}
std::string ActivationGradText(simd::ActivationOp op, DType type,
                               const simd::ActivationParameters& parameters) {
  return absl::StrFormat("$1 * %sD($0, %s)", kActivations[static_cast<int>(op)],
                         ConstantsText(type, parameters));
}

std::string LogicText(LogicOp op) {
  switch (op) {
    case LogicOp::kAnd:
      return AsByte("$0 != 0 && $1 != 0");
    case LogicOp::kOr:
      return AsByte("$0 != 0 || $1 != 0");
    case LogicOp::kXor:
      return AsByte("($0 != 0) != ($1 != 0)");
    case LogicOp::kNot:
      return AsByte("$0 == 0");
  }
  return "";
}

std::string TestText(TestOp op, DType type, const simd::ActivationParameters& infinities) {
  if (op == TestOp::kIsNan) return AsByte("$0 != $0");
  return AsByte(absl::StrFormat("$0 == %s || $0 == %s", NumberText(type, infinities.a),
                                NumberText(type, infinities.b)));
}

std::string CastText(DType from, DType to) {
  const DType in = FusedType(from), out = FusedType(to);
  if (in == DType::kBool || out == DType::kBool) return "";
  if (to == DType::kBool) return AsByte("$0 != 0");
  // Integers are converted as the widest of them.
  std::string number = "$0";
  if (from == DType::kBool) number = "($0 != 0)";
  if (!IsFloating(in)) number = absl::StrFormat("static_cast<int64_t>(%s)", number);
  return absl::StrFormat("Converted<%s>(%s)", TypeText(out), number);
}

DType FusedType(DType stored) {
  switch (stored) {
    case DType::kBF16:
    case DType::kF16:
    case DType::kF32:
      return DType::kF32;
    case DType::kBool:
    case DType::kU8:
      return DType::kU8;
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return stored;
    default:
      return DType::kBool;
  }
}

std::string TypeText(DType type) {
  switch (type) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kBF16:
      return "braid::BFloat16";
    case DType::kF16:
      return "braid::Float16";
    case DType::kI32:
      return "int32_t";
    case DType::kI64:
      return "int64_t";
    default:
      return "uint8_t";
  }
}

}  // namespace braid::cuda
