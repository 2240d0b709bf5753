// Operators of the domain ai.onnx.ml that make features ready for a model, and what follows one.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/ml_scores.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr char kNoStrings[] =
    "strings, which no tensor of Braid holds; encode them before the model and export it without "
    "that step";

// The list's one element, or an element for each feature.
absl::StatusOr<Tensor> PerFeature(const NodeView& n, const char* name,
                                  const std::vector<double>& list, DType dtype) {
  const auto size = static_cast<int64_t>(list.size());
  const int64_t features = n.rank() > 0 ? n.shape()[n.rank() - 1] : 1;
  if (size != 1 && (size != features || n.rank() > 2)) {
    return Wrong(absl::StrCat("it has ", size, " ", name, "s; one, or one for each feature of ",
                              n.type(0).ToString(), ", is needed"));
  }
  return n.Table(name, TableOf(list, {size}, dtype));
}

absl::StatusOr<Tensors> TranslateScaler(const NodeView& n) {
  const DType dtype = n.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  BRAID_ASSIGN_OR_RETURN(
      const Tensor offset,
      PerFeature(n, "offset", n.Floats("offset").value_or(std::vector<double>{0}), dtype));
  BRAID_ASSIGN_OR_RETURN(
      const Tensor scale,
      PerFeature(n, "scale", n.Floats("scale").value_or(std::vector<double>{1}), dtype));
  return Tensors{Cast(Mul(Sub(Cast(n.in(0), dtype), offset), scale), DType::kF32)};
}

// Each row over its largest element, its sum of magnitudes, or its length; by 0 nothing is divided.
absl::StatusOr<Tensors> TranslateNormalizer(const NodeView& n) {
  const std::string norm = n.Text("norm", "MAX");
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  const ReduceOptions options = {.axes = {1}, .keep_dims = true};
  Tensor divisor;
  if (norm == "MAX") {
    divisor = ReduceMax(x, options);
  } else if (norm == "L1") {
    divisor = ReduceL1(x, options);
  } else if (norm == "L2") {
    divisor = ReduceL2(x, options);
  } else {
    return Wrong(absl::StrCat("norm is '", norm, "'; MAX, L1 or L2 is needed"));
  }
  const Tensor is_zero = Equal(divisor, NumberLike(x, 0));
  const Tensor y = Div(x, Where(is_zero, NumberLike(x, 1), divisor));
  return Tensors{Cast(Reshape(y, n.shape()), DType::kF32)};
}

absl::StatusOr<Tensors> TranslateBinarizer(const NodeView& n) {
  const double threshold = n.Float("threshold", 0);
  const Tensor x = IsFloating(n.dtype()) ? n.in(0) : Cast(n.in(0), DType::kF64);
  return Tensors{Cast(Greater(x, NumberLike(x, threshold)), n.dtype())};
}

absl::StatusOr<Tensors> TranslateImputer(const NodeView& n) {
  const double float_value = n.Float("replaced_value_float", 0);
  const int64_t int_value = n.Int("replaced_value_int64", 0);
  const std::optional<std::vector<double>> floats = n.Floats("imputed_value_floats");
  const std::optional<Ints> ints = n.List("imputed_value_int64s");
  const bool is_floating = IsFloating(n.dtype());
  if (is_floating ? !floats : !ints) {
    return Wrong(absl::StrCat("it has no imputed values for ", n.type(0).ToString()));
  }
  const std::vector<double> list =
      is_floating ? *floats : std::vector<double>(ints->begin(), ints->end());
  BRAID_ASSIGN_OR_RETURN(const Tensor values, PerFeature(n, "imputed_value", list, n.dtype()));
  const Tensor x = n.in(0);
  const double replaced = is_floating ? float_value : static_cast<double>(int_value);
  const Tensor is_missing = std::isnan(replaced) ? IsNan(x) : Equal(x, NumberLike(x, replaced));
  return Tensors{Where(is_missing, values, x)};
}

// Of each input as many columns as the attribute says: the first ones, or all and then zeros.
absl::StatusOr<Tensors> TranslateFeatureVectorizer(const NodeView& n) {
  const std::optional<Ints> widths = n.List("inputdimensions");
  if (widths && static_cast<int>(widths->size()) != n.num_inputs()) {
    return Wrong(absl::StrCat("it has ", widths->size(), " inputdimensions for ", n.num_inputs(),
                              " inputs"));
  }
  Tensors parts;
  for (int i = 0; i < n.num_inputs(); ++i) {
    if (!n.HasInput(i)) return Wrong(absl::StrCat("input ", i, " is missing"));
    if (n.rank(i) != 1 && n.rank(i) != 2) {
      return Wrong(absl::StrCat("input ", i, " is ", n.type(i).ToString(), "; [n, c] is needed"));
    }
    const Tensor x = Cast(n.in(i), DType::kF32);
    const Tensor rows = n.rank(i) == 1 ? ExpandDims(x, 0) : x;
    const int64_t columns = n.shape(i)[n.rank(i) - 1];
    const int64_t width = widths ? (*widths)[i] : columns;
    if (width < 0) return Wrong(absl::StrCat("an inputdimension is ", width));
    parts.push_back(width == columns ? rows : Pad(rows, {0, 0}, {0, width - columns}));
  }
  return Tensors{parts.size() == 1 ? parts[0] : Concat(parts, 1)};
}

// Elements y of the last axis of x; a list is one row.
absl::StatusOr<Tensors> TranslateArrayFeatureExtractor(const NodeView& n) {
  if (n.rank() == 0) return Wrong("the input has no axis");
  const Tensor x = n.rank() == 1 ? ExpandDims(n.in(0), 0) : n.in(0);
  const Tensor indices = Reshape(n.in(1), {n.shape(1).num_elements()});
  return Tensors{Gather(x, indices, {.axis = -1})};
}

// Which of k keys each element of x is: [.., k] bools. NaN is NaN.
absl::StatusOr<Tensor> IsKey(const NodeView& n, const Array& keys) {
  const Tensor x = ExpandDims(Cast(n.in(0), keys.dtype()), -1);
  BRAID_ASSIGN_OR_RETURN(Tensor table, n.Table("keys", keys));
  table = Reshape(table, {keys.num_elements()});
  Tensor is_key = Equal(x, table);
  if (IsFloating(keys.dtype())) {
    bool has_nan = false;
    const Array wide = keys.As(DType::kF64);
    for (double key : wide.data<double>()) has_nan |= std::isnan(key);
    if (has_nan) is_key = LogicalOr(is_key, LogicalAnd(IsNan(x), IsNan(table)));
  }
  return is_key;
}

// The place of each element of x among k keys; k if it is none of them.
absl::StatusOr<Tensor> PlaceAmong(const NodeView& n, const Array& keys) {
  BRAID_ASSIGN_OR_RETURN(const Tensor is_key, IsKey(n, keys));
  const Tensor found = ReduceAny(is_key, {.axes = {-1}});
  // Of keys that stand twice the last one counts.
  const Tensor place = ArgMax(Cast(is_key, DType::kI32), -1, {.last = true});
  const Tensor none =
      Constant(n.graph(), static_cast<double>(keys.num_elements()), {.dtype = place.dtype()});
  return Where(found, place, none);
}

absl::StatusOr<Tensors> TranslateOneHotEncoder(const NodeView& n) {
  const std::optional<std::vector<std::string>> strings = n.Texts("cats_strings");
  if (strings && !strings->empty())
    return Lacking(absl::StrCat("categories that are ", kNoStrings));
  const Ints categories = n.List("cats_int64s").value_or(Ints());
  const auto size = static_cast<int64_t>(categories.size());
  if (size == 0) return Wrong("it has no categories");
  const Array keys = Array::FromVector({size}, categories);
  if (n.Flag("zeros", true)) {
    BRAID_ASSIGN_OR_RETURN(const Tensor is_key, IsKey(n, keys));
    return Tensors{Cast(is_key, DType::kF32)};
  }
  // What is in no category is an error of the step, as an index beyond the table's end is.
  BRAID_ASSIGN_OR_RETURN(const Tensor place, PlaceAmong(n, keys));
  return Tensors{Gather(Eye(n.graph(), size, size), place)};
}

// A list of LabelEncoder: as a tensor, integers or floats; none of them has no array.
absl::StatusOr<std::optional<Array>> EncoderList(const NodeView& n, const std::string& name) {
  const std::optional<std::vector<std::string>> strings = n.Texts((name + "_strings").c_str());
  if (strings && !strings->empty()) return Lacking(absl::StrCat(name, " that are ", kNoStrings));
  const std::optional<Ints> ints = n.List((name + "_int64s").c_str());
  const std::optional<std::vector<double>> floats = n.Floats((name + "_floats").c_str());
  if (const AttributeProto* tensor = n.Find((name + "_tensor").c_str()); tensor != nullptr) {
    if (tensor->t().data_type() == kStringType) {
      return Lacking(absl::StrCat(name, " that are ", kNoStrings));
    }
    BRAID_ASSIGN_OR_RETURN(Array array, ToArray(tensor->t(), n.surroundings().file()));
    return array;
  }
  if (ints && !ints->empty()) {
    return Array::FromVector({static_cast<int64_t>(ints->size())}, *ints);
  }
  if (floats && !floats->empty()) {
    return TableOf(*floats, {static_cast<int64_t>(floats->size())}, DType::kF32);
  }
  return std::optional<Array>();
}

// What is no key becomes this: one element of `dtype`.
absl::StatusOr<Array> EncoderDefault(const NodeView& n, DType dtype) {
  n.Ignore("default_string");
  const double as_float = n.Float("default_float", -0.0);
  const int64_t as_int = n.Int("default_int64", -1);
  if (const AttributeProto* tensor = n.Find("default_tensor"); tensor != nullptr) {
    BRAID_ASSIGN_OR_RETURN(const Array array, ToArray(tensor->t(), n.surroundings().file()));
    if (array.num_elements() != 1) return Wrong("default_tensor is not one element");
    return array.As(dtype);
  }
  return IsFloating(dtype) ? Array::Scalar(as_float).As(dtype) : Array::Scalar(as_int).As(dtype);
}

absl::StatusOr<Tensors> TranslateLabelEncoder(const NodeView& n) {
  if (n.Has("classes_strings")) return Lacking(absl::StrCat("labels that are ", kNoStrings));
  BRAID_ASSIGN_OR_RETURN(const std::optional<Array> keys, EncoderList(n, "keys"));
  BRAID_ASSIGN_OR_RETURN(const std::optional<Array> values, EncoderList(n, "values"));
  if (!keys || !values || keys->num_elements() != values->num_elements()) {
    return Wrong(absl::StrCat("it has ", keys ? keys->num_elements() : 0, " keys and ",
                              values ? values->num_elements() : 0, " values"));
  }
  if (keys->dtype() != n.dtype()) {
    return Wrong(absl::StrCat("the input is ", n.type(0).ToString(), ", the keys are ",
                              std::string(braid::ToString(keys->dtype()))));
  }
  BRAID_ASSIGN_OR_RETURN(const Array otherwise, EncoderDefault(n, values->dtype()));
  const int64_t size = keys->num_elements();
  BRAID_ASSIGN_OR_RETURN(const Tensor place, PlaceAmong(n, *keys));
  BRAID_ASSIGN_OR_RETURN(const Tensor table, n.Table("values", *values));
  BRAID_ASSIGN_OR_RETURN(const Tensor last, n.Table("default", otherwise));
  return Tensors{Gather(Concat({Reshape(table, {size}), Reshape(last, {1})}, 0), place)};
}

// A column of probabilities for each class becomes, in ONNX, a sequence of maps from class to
// probability; the tensor itself has the same numbers.
absl::StatusOr<std::vector<Value>> TranslateZipMap(const NodeView& n) {
  n.Ignore("classlabels_int64s");
  n.Ignore("classlabels_strings");
  if (!n.value(0).is_tensor()) return Wrong("input 0 is no tensor");
  return std::vector<Value>{n.value(0)};
}

}  // namespace

void AddMlFeatures(Translators& all) {
  all.Add("ai.onnx.ml.Scaler", {}, TranslateScaler);
  all.Add("ai.onnx.ml.Normalizer", {}, TranslateNormalizer);
  all.Add("ai.onnx.ml.Binarizer", {}, TranslateBinarizer);
  all.Add("ai.onnx.ml.Imputer", {}, TranslateImputer);
  all.Add("ai.onnx.ml.FeatureVectorizer", {1, kAnyNumber}, TranslateFeatureVectorizer);
  all.Add("ai.onnx.ml.ArrayFeatureExtractor", {2, 2}, TranslateArrayFeatureExtractor);
  all.Add("ai.onnx.ml.OneHotEncoder", {}, TranslateOneHotEncoder);
  all.Add("ai.onnx.ml.LabelEncoder", {}, TranslateLabelEncoder);
  all.AddValues("ai.onnx.ml.ZipMap", {}, TranslateZipMap);
}

}  // namespace braid::onnx
