#include "api/conformance/operator_case.h"

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace braid::conformance {
namespace {

const char* NameOf(Sizes sizes) {
  switch (sizes) {
    case Sizes::kAsGiven:
      return "";
    case Sizes::kPrime:
      return ", prime sizes";
    case Sizes::kTiny:
      return ", tiny sizes";
    case Sizes::kEven:
      return ", even sizes";
  }
  return "";
}

// Equal sizes stay equal, and 1 stays 1, so that operands still fit together.
int64_t Resized(int64_t size, Sizes sizes) {
  if (size <= 1) return size;
  switch (sizes) {
    case Sizes::kAsGiven:
      return size;
    case Sizes::kPrime: {
      static constexpr int64_t kPrimes[] = {0, 1, 3, 5, 7, 11, 13, 17, 19};
      return kPrimes[std::min<int64_t>(size, 8)];
    }
    case Sizes::kTiny:
      return std::min<int64_t>(size, 3);
    case Sizes::kEven:
      return size + size % 2;
  }
  return size;
}

// The attributes that are sizes of whole axes; "size" of a slice is a list, and may stay.
void ResizeAttrs(Attrs& attrs, Sizes sizes) {
  const Attrs before = attrs;
  for (const auto& [name, value] : before.values()) {
    if (const auto* size = std::get_if<int64_t>(&value); name == "size" && size != nullptr) {
      attrs.Set(name, Resized(*size, sizes));
    }
    if (name != "shape") continue;
    std::vector<int64_t> shape = before.Ints(name);
    for (int64_t& size : shape) size = Resized(size, sizes);
    attrs.Set(name, std::move(shape));
  }
}

bool AnyFloating(std::span<const TensorType> types) {
  return std::any_of(types.begin(), types.end(),
                     [](const TensorType& type) { return IsFloating(type.dtype); });
}

// Whose inputs, or what is asked for, have become others; nullopt: the operator does not take them.
std::optional<OpCase> OfSeveralTypes(OpCase c, const char* label) {
  c.label += label;
  c.has_wide_numbers = true;
  absl::StatusOr<std::vector<TensorType>> outputs = c.def->InferTypes(c.context());
  if (!outputs.ok()) return std::nullopt;  // registering the operator tried its own samples
  c.outputs = *std::move(outputs);
  return c;
}

// The same with f32 for all that need not be as narrow as these inputs; nullopt: nothing is.
std::optional<OpCase> WithWideNumbers(OpCase c) {
  const std::vector<int>& narrow = c.def->keeps_narrow();
  if (narrow.empty()) return std::nullopt;
  bool any_wide = false;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!IsNarrow(c.inputs[i].dtype) || std::ranges::count(narrow, static_cast<int>(i)) > 0)
      continue;
    c.inputs[i].dtype = DType::kF32;
    any_wide = true;
  }
  if (!any_wide) return std::nullopt;
  return OfSeveralTypes(std::move(c), " and f32");
}

// With f32 inputs of which narrow results are made; nullopt: it makes none.
std::optional<OpCase> MakingNarrow(OpCase c, DType floating) {
  if (!c.def->makes_narrow() || !IsNarrow(floating) || c.attrs.Has("dtype")) return std::nullopt;
  for (TensorType& input : c.inputs) {
    if (IsNarrow(input.dtype)) input.dtype = DType::kF32;
  }
  c.attrs.Set("dtype", floating);
  return OfSeveralTypes(std::move(c), " of f32");
}

}  // namespace

std::vector<OpCase> CasesOf(const OpDef& def, DType floating, Sizes sizes) {
  std::vector<OpCase> cases;
  for (size_t i = 0; i < def.samples().size(); ++i) {
    const OpSample& sample = def.samples()[i];
    OpCase c = {.def = &def,
                .attrs = sample.attrs,
                .inputs = sample.inputs,
                .low = sample.low,
                .high = sample.high,
                .int_high = sample.int_high,
                .check_gradient = sample.check_gradient};
    c.label = absl::StrCat(def.name(), ", sample ", i, NameOf(sizes), ", ",
                           std::string(ToString(floating)));
    // A dtype attribute is the floating type of what has no floating input to take it from, or of a
    // product's or a norm's result.
    const bool follows =
        !AnyFloating(c.inputs) || !def.narrow_inputs().empty() || def.makes_narrow();
    if (follows && c.attrs.Has("dtype") && IsFloating(c.attrs.Type("dtype"))) {
      c.attrs.Set("dtype", floating);
    }
    for (TensorType& input : c.inputs) {
      if (IsFloating(input.dtype)) input.dtype = floating;
      for (int axis = 0; axis < input.shape.rank(); ++axis) {
        input.shape[axis] = Resized(input.shape[axis], sizes);
      }
    }
    ResizeAttrs(c.attrs, sizes);
    if (sizes == Sizes::kTiny) c.int_high = std::min<int64_t>(c.int_high, 2);
    absl::StatusOr<std::vector<TensorType>> outputs = def.InferTypes(c.context());
    if (!outputs.ok() && floating == DType::kF64 && def.narrow_inputs().empty() &&
        c.attrs.Has("dtype")) {
      // f32 of narrow inputs: here the inputs are wider.
      c.attrs.Set("dtype", floating);
      outputs = def.InferTypes(c.context());
    }
    if (!outputs.ok()) continue;  // samples as they are were checked when the op registered
    c.outputs = *std::move(outputs);
    std::optional<OpCase> mixed = WithWideNumbers(c), making = MakingNarrow(c, floating);
    cases.push_back(std::move(c));
    if (mixed.has_value()) cases.push_back(*std::move(mixed));
    if (making.has_value()) cases.push_back(*std::move(making));
  }
  return cases;
}

std::vector<Array> DrawInputs(const OpCase& c) {
  std::mt19937_64 generator(12345);
  std::vector<Array> arrays;
  for (const TensorType& type : c.inputs) {
    std::uniform_real_distribution<double> real(c.low, c.high);
    std::uniform_int_distribution<int64_t> integer(0,
                                                   type.dtype == DType::kBool ? 1 : c.int_high - 1);
    std::vector<double> numbers(type.shape.num_elements());
    for (double& number : numbers) {
      number = IsFloating(type.dtype) ? real(generator) : static_cast<double>(integer(generator));
    }
    arrays.push_back(FromNumbers(type.dtype, type.shape, numbers));
  }
  return arrays;
}

std::vector<double> Numbers(const Array& array) {
  const Array wide = array.As(DType::kF64);
  const std::span<const double> data = wide.data<double>();
  return {data.begin(), data.end()};
}

Array FromNumbers(DType dtype, const Shape& shape, const std::vector<double>& numbers) {
  return Array::FromVector<double>(shape, numbers).As(dtype);
}

}  // namespace braid::conformance
