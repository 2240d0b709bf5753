#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/run_receiver.h"
#include "api/session.h"
#include "runtime/base/nearest_names.h"

namespace braid {

RunResult::RunResult(std::shared_ptr<Mistakes> mistakes)
    : mistakes_(std::move(mistakes)), nothing_(DType::kF32, {}, mistakes_) {
  nothing_.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
}

const std::vector<Array>& RunResult::Values(std::string_view name, SourceLocation where) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [fetched, values] : values_) names.push_back(fetched);
  mistakes_->Report(absl::NotFoundError(
      absl::StrFormat("the job fetches nothing named '%s'; the nearest of %d: %s (%s)", name,
                      names.size(), NearestNames(name, names), where.ToString())));
  return no_values_;
}

const Array& RunResult::Last(std::string_view name, SourceLocation where) const {
  const std::vector<Array>& values = Values(name, where);
  return values.empty() ? nothing_ : values.back();
}

std::vector<double> RunResult::Scalars(std::string_view name, SourceLocation where) const {
  std::vector<double> scalars;
  for (const Array& value : Values(name, where)) {
    const std::optional<double> scalar = ScalarOf(value);
    if (!scalar.has_value()) {
      mistakes_->Report(absl::InvalidArgumentError(absl::StrFormat(
          "Scalars: what is fetched as '%s' is %s%s, and one number was expected; Values has it "
          "(%s)",
          name, ToString(value.dtype()), value.shape().ToString(), where.ToString())));
    }
    scalars.push_back(scalar.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return scalars;
}

double RunResult::Mean(std::string_view name, SourceLocation where) const {
  double sum = 0;
  int64_t count = 0;
  for (const Array& value : Values(name, where)) {
    const Array numbers = value.As(DType::kF64);
    for (double number : numbers.data<double>()) sum += number;
    count += value.num_elements();
  }
  return sum / static_cast<double>(count);
}

}  // namespace braid
