#include "graph/input_checks.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace braid {
namespace {

absl::Status CheckDType(const OpContext& ctx, int input, bool fits, std::string_view needed) {
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(InputText(ctx, input), "; ", std::string(needed), " is needed"));
}

}  // namespace

absl::Status CheckInputs(const OpContext& ctx, int count) {
  if (static_cast<int>(ctx.inputs.size()) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", ctx.inputs.size(), " inputs, takes ", count));
}

absl::Status CheckFloating(const OpContext& ctx, int input) {
  return CheckDType(ctx, input, IsFloating(ctx.inputs[input].dtype), "a floating dtype");
}

absl::Status CheckInteger(const OpContext& ctx, int input) {
  const DType dtype = ctx.inputs[input].dtype;
  return CheckDType(ctx, input, dtype == DType::kI32 || dtype == DType::kI64, "i32 or i64");
}

absl::Status CheckBool(const OpContext& ctx, int input) {
  return CheckDType(ctx, input, ctx.inputs[input].dtype == DType::kBool, "bool");
}

absl::Status CheckSameDType(const OpContext& ctx, int a, int b) {
  if (ctx.inputs[a].dtype == ctx.inputs[b].dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(InputText(ctx, a), ", ", InputText(ctx, b), "; dtypes differ, Cast one"));
}

std::string LetterOf(int input) { return std::string(1, static_cast<char>('a' + input)); }

std::string InputText(const OpContext& ctx, int input) {
  return absl::StrCat(LetterOf(input), " is ", ctx.inputs[input].ToString());
}

}  // namespace braid
