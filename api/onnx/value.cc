#include "api/onnx/value.h"

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr int64_t kExactInF64 = int64_t{1} << 53;

// The one number that all elements are, if a double holds it.
std::optional<double> UniformValue(const Array& array) {
  if (array.num_elements() == 0) return 0;
  if (!IsUniform(array)) return std::nullopt;
  if (array.dtype() == DType::kI64) {
    const int64_t value = array.data<int64_t>()[0];
    if (value < -kExactInF64 || value > kExactInF64) return std::nullopt;
  }
  return array.As(DType::kF64).data<double>()[0];
}

// As Literal takes them.
std::vector<int64_t> Elements(const Array& array) {
  std::vector<int64_t> elements;
  if (IsFloating(array.dtype())) {
    const Array wide = array.As(DType::kF64);
    for (double value : wide.data<double>()) elements.push_back(std::bit_cast<int64_t>(value));
  } else {
    const Array wide = array.As(DType::kI64);
    elements.assign(wide.data<int64_t>().begin(), wide.data<int64_t>().end());
  }
  return elements;
}

}  // namespace

bool IsUniform(const Array& array) {
  const size_t size = SizeOf(array.dtype());
  for (int64_t i = 1; i < array.num_elements(); ++i) {
    if (std::memcmp(array.bytes(), array.bytes() + i * size, size) != 0) return false;
  }
  return true;
}

Value ConstantOf(Array array) {
  return {.numbers = std::make_shared<const KnownNumbers>(std::move(array))};
}

Value SequenceOf(std::vector<Value> values) {
  return {.sequence = std::make_shared<const std::vector<Value>>(std::move(values))};
}

void Target::Enter(std::string_view scope) {
  scopes_.emplace_back(scope);
  graph_.PushScope(scope);
}

void Target::Leave() {
  scopes_.pop_back();
  graph_.PopScope();
}

Tensor Target::TensorOf(const Value& value) {
  if (value.tensor.valid()) return value.tensor;
  Value& made = made_[value.numbers.get()];
  if (!made.tensor.valid()) made = {.tensor = MakeTensor(value), .numbers = value.numbers};
  return made.tensor;
}

Tensor Target::MakeTensor(const Value& value) {
  const TensorType type = value.type();
  if (options_ == nullptr) {
    const Tensor fed = Input(graph_, absl::StrCat("known", feeds_.size()), type);
    if (fed.valid()) feeds_[fed.id()] = value.numbers;
    return fed;
  }
  const absl::StatusOr<bool> is_variable = IsVariable(value);
  if (is_variable.ok() && *is_variable) return MakeVariable(value);
  const auto array = value.numbers->Read();
  if (!array.ok()) {
    graph_.Fail(array.status());
    return Tensor();
  }
  if (const std::optional<double> uniform = UniformValue(**array)) {
    return Constant(graph_, *uniform, {.dtype = type.dtype, .shape = type.shape});
  }
  return Literal(graph_, type, Elements(**array));
}

absl::StatusOr<bool> Target::IsVariable(const Value& value) const {
  if (options_ == nullptr || value.tensor.valid() || value.numbers == nullptr) return false;
  if (value.is_weight) return true;
  if (value.type().shape.num_elements() <= kMaxLiteralElements) return false;
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, value.numbers->Read());
  return !UniformValue(*array).has_value();
}

absl::Status Target::Check(const Value& value) {
  if (made_.contains(value.numbers.get())) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(const bool is_variable, IsVariable(value));
  if (!is_variable) return absl::OkStatus();
  for (size_t i = 0; i < scopes_.size(); ++i) graph_.PopScope();
  const std::string name = graph_.ScopedName(value.name), free = graph_.UniqueName(value.name);
  for (const std::string& scope : scopes_) graph_.PushScope(scope);
  if (!value.name.empty() && name == free) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the job has an op '", name, "' already, which the variable would be"));
}

Tensor Target::MakeVariable(const Value& value) {
  // Jobs and checkpoints find it by the file's name, not by the node that came first.
  for (size_t i = 0; i < scopes_.size(); ++i) graph_.PopScope();
  const TensorType type = value.type();
  const auto layout = options_->layouts.find(value.name);
  const Tensor variable = Variable(
      graph_,
      {.name = value.name,
       .dtype = type.dtype,
       .shape = type.shape,
       .trainable = options_->is_trainable && value.is_trained,
       .sbp = layout != options_->layouts.end() ? std::optional(layout->second) : std::nullopt});
  if (variable.valid()) variables_[graph_.producer(variable.id()).name] = value.numbers;
  for (const std::string& scope : scopes_) graph_.PushScope(scope);
  return variable;
}

}  // namespace braid::onnx
