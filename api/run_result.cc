#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/run_receiver.h"
#include "api/session.h"
#include "glog/logging.h"

namespace braid {

const std::vector<Array>& RunResult::Values(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end()) << "the job fetches nothing named '" << name << "'";
  return found->second;
}

const Array& RunResult::Last(std::string_view name) const {
  const std::vector<Array>& values = Values(name);
  CHECK(!values.empty()) << "nothing was fetched as '" << name << "'";
  return values.back();
}

std::vector<double> RunResult::Scalars(std::string_view name) const {
  std::vector<double> scalars;
  for (const Array& value : Values(name)) {
    const std::optional<double> scalar = ScalarOf(value);
    CHECK(scalar.has_value()) << "fetch '" << name << "' has shape " << value.shape().ToString();
    scalars.push_back(*scalar);
  }
  return scalars;
}

double RunResult::Mean(std::string_view name) const {
  double sum = 0;
  int64_t count = 0;
  for (const Array& value : Values(name)) {
    const Array numbers = value.As(DType::kF64);
    for (double number : numbers.data<double>()) sum += number;
    count += value.num_elements();
  }
  return sum / static_cast<double>(count);
}

}  // namespace braid
