// What a Run fetches, step by step, into the arrays of its RunResult.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "api/session.h"
#include "graph/logical_graph.h"
#include "runtime/array.h"
#include "runtime/base/mistakes.h"
#include "runtime/host_io.h"

namespace braid {

// "f32[64, 10] from -1.5 to 2, mean 0.25: -1.5 2 0.1 ...", of the first numbers.
std::string PrintedText(const Array& array);

// Of an array with one element.
std::optional<double> ScalarOf(const Array& array);

class RunReceiver final : public FetchReceiver {
 public:
  using Values = std::map<std::string, std::vector<Array>, std::less<>>;
  using OnScalar = std::function<absl::Status(std::string_view name, int64_t step, double value)>;

  // `mistakes` is of the arrays that it makes.
  RunReceiver(Values& values, const RunOptions& options, std::shared_ptr<Mistakes> mistakes,
              int64_t first_step, OnScalar on_scalar)
      : values_(values),
        keep_(options.keep),
        on_step_(options.on_step),
        mistakes_(std::move(mistakes)),
        first_step_(first_step),
        on_scalar_(std::move(on_scalar)) {}

  // Makes arrays before the Run begins, so that its steps take no memory. Of very long Runs, those
  // of the later steps are made as they come.
  void Expect(const std::string& name, const TensorType& type, int64_t steps);

  // Of a value that is printed, each `every` steps, and not kept.
  void ExpectPrint(const std::string& name, const TensorType& type, int64_t every,
                   std::function<void(int64_t step, const std::string& value)> print);

  Array& Place(std::string_view name, int64_t step, DType dtype, const Shape& shape) override;
  absl::Status OnFetched(std::string_view name, int64_t step, const Array& value) override;

  // After the last step: what was added up becomes a mean.
  void Finish();

 private:
  struct Sum {
    Array array;  // f64
    int64_t count = 0;
  };

  struct Printed {
    Array array;
    int64_t every = 1;
    std::function<void(int64_t step, const std::string& value)> print;
  };

  Values& values_;
  std::map<std::string, Printed, std::less<>> prints_;
  const Keep keep_;
  const std::function<absl::Status(int64_t step, const StepValues& values)> on_step_;
  size_t fetches_ = 0;
  std::map<int64_t, StepValues> steps_;  // of which some has not come yet; for on_step_
  std::map<std::string, Sum, std::less<>> sums_;
  const std::shared_ptr<Mistakes> mistakes_;
  const int64_t first_step_;
  const OnScalar on_scalar_;
};

}  // namespace braid
