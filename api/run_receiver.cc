#include "api/run_receiver.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

std::string PrintedText(const Array& array) {
  constexpr int64_t kMostNumbers = 8;
  std::string text = absl::StrCat(std::string(ToString(array.dtype())), array.shape().ToString());
  const Array wide = array.As(DType::kF64);
  const std::span<const double> numbers = wide.data<double>();
  if (numbers.empty()) return text;
  double sum = 0, low = numbers[0], high = numbers[0];
  for (const double number : numbers) {
    sum += number;
    low = std::min(low, number);
    high = std::max(high, number);
  }
  if (numbers.size() > 1) {
    absl::StrAppendFormat(&text, " from %g to %g, mean %g", low, high,
                          sum / static_cast<double>(numbers.size()));
  }
  absl::StrAppend(&text, ":");
  for (size_t i = 0; i < numbers.size() && i < kMostNumbers; ++i) {
    absl::StrAppendFormat(&text, " %g", numbers[i]);
  }
  if (numbers.size() > kMostNumbers) absl::StrAppend(&text, " ...");
  return text;
}

void RunReceiver::ExpectPrint(const std::string& name, const TensorType& type, int64_t every,
                              std::function<void(int64_t step, const std::string& value)> print) {
  prints_[name] = {Array(type.dtype, type.shape, mistakes_), every, std::move(print)};
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
  const auto printed = prints_.find(name);
  if (printed != prints_.end()) return printed->second.array;
  std::vector<Array>& values = values_.find(name)->second;
  // A step's value is whole before the next one's first piece comes.
  const auto index = static_cast<size_t>(keep_ == Keep::kAll ? step - first_step_ : 0);
  while (values.size() <= index) values.emplace_back(dtype, shape, mistakes_);
  return values[index];
}

absl::Status RunReceiver::OnFetched(std::string_view name, int64_t step, const Array& value) {
  if (const auto printed = prints_.find(name); printed != prints_.end()) {
    if (step % printed->second.every == 0) {
      printed->second.print(step, PrintedText(value));
    }
    return absl::OkStatus();
  }
  if (keep_ == Keep::kMean) {
    Sum& sum = sums_.find(name)->second;
    const Array numbers = value.As(DType::kF64);
    const std::span<const double> from = numbers.data<double>();
    const std::span<double> to = sum.array.mutable_data<double>();
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    ++sum.count;
  }
  const std::optional<double> scalar = ScalarOf(value);
  if (scalar.has_value()) BRAID_RETURN_IF_ERROR(on_scalar_(name, step, *scalar));
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
