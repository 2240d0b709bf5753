#include "api/run_receiver.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"

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
  const int64_t made =
      keep_ == Keep::kAll ? std::min({steps, kMostMadeBefore, kMostBytesMadeBefore / bytes}) : 1;
  if (keep_ == Keep::kMean) sums_[name].array = Array(DType::kF64, type.shape, mistakes_);
  ++fetches_;
  std::vector<Array>& values = values_[name];
  values.reserve(made);
  for (int64_t i = 0; i < made; ++i) values.emplace_back(type.dtype, type.shape, mistakes_);
}

Array& RunReceiver::Place(std::string_view name, int64_t step, DType dtype, const Shape& shape) {
  std::vector<Array>& values = values_.find(name)->second;
  // A step's value is whole before the next one's first piece comes.
  const auto index = static_cast<size_t>(keep_ == Keep::kAll ? step - first_step_ : 0);
  while (values.size() <= index) values.emplace_back(dtype, shape, mistakes_);
  return values[index];
}

absl::Status RunReceiver::OnFetched(std::string_view name, int64_t step, const Array& value) {
  if (keep_ == Keep::kMean) {
    Sum& sum = sums_.find(name)->second;
    const Array numbers = value.As(DType::kF64);
    const std::span<const double> from = numbers.data<double>();
    const std::span<double> to = sum.array.mutable_data<double>();
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    ++sum.count;
  }
  const std::optional<double> scalar = ScalarOf(value);
  if (scalar.has_value()) RETURN_IF_ERROR(on_scalar_(name, step, *scalar));
  if (!on_step_) return absl::OkStatus();
  // Each fetch comes in the order of steps, so that these become whole in that order, too.
  StepValues& values = steps_[step];
  values.emplace(name, value);
  if (values.size() < fetches_) return absl::OkStatus();
  const StepValues whole = std::move(values);
  steps_.erase(step);
  return CatchExceptions("RunOptions::on_step", [&] { return on_step_(step, whole); });
}

void RunReceiver::Finish() {
  for (auto& [name, sum] : sums_) {
    for (double& number : sum.array.mutable_data<double>()) {
      number /= static_cast<double>(sum.count);
    }
    std::vector<Array>& values = values_.find(name)->second;
    values.clear();
    values.push_back(std::move(sum.array));
  }
}

}  // namespace braid
