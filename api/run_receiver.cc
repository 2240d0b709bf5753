#include "api/run_receiver.h"

#include <algorithm>

namespace braid {
namespace {

constexpr int64_t kMostMadeBefore = int64_t{1} << 16;
constexpr int64_t kMostBytesMadeBefore = int64_t{64} << 20;  // of a fetch

}  // namespace

std::optional<double> ScalarOf(const Array& array) {
  if (array.num_elements() != 1) return std::nullopt;
  double scalar = 0;
  ConvertElements(array.dtype(), array.bytes(), DType::kF64, &scalar, 1);
  return scalar;
}

void RunReceiver::Expect(const std::string& name, const TensorType& type, int64_t steps) {
  const int64_t bytes =
      std::max<int64_t>(1, type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype)));
  const int64_t made = std::min({steps, kMostMadeBefore, kMostBytesMadeBefore / bytes});
  std::vector<Array>& values = values_[name];
  values.reserve(made);
  for (int64_t i = 0; i < made; ++i) values.emplace_back(type.dtype, type.shape);
}

Array& RunReceiver::Place(std::string_view name, int64_t step, DType dtype, const Shape& shape) {
  std::vector<Array>& values = values_.find(name)->second;
  const auto index = static_cast<size_t>(step - first_step_);
  while (values.size() <= index) values.emplace_back(dtype, shape);
  return values[index];
}

absl::Status RunReceiver::OnFetched(std::string_view name, int64_t step, const Array& value) {
  const std::optional<double> scalar = ScalarOf(value);
  return scalar.has_value() ? on_scalar_(name, step, *scalar) : absl::OkStatus();
}

}  // namespace braid
