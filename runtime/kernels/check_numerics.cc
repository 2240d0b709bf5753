#include "runtime/kernels/check_numerics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/dtype_traits.h"

namespace braid {
namespace {

// What the elements of an operand are; of one without floating elements, nothing.
struct Numbers {
  int64_t nans = 0, infinities = 0;
  int64_t first_nan = -1, first_infinity = -1;
  // Of the others.
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

template <typename Wide, typename T>
Numbers Look(const T* elements, int64_t count) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<Wide>(elements[i]);
    if (std::isfinite(value)) {
      numbers.low = std::min<double>(numbers.low, value);
      numbers.high = std::max<double>(numbers.high, value);
    } else if (std::isnan(value)) {
      if (numbers.nans++ == 0) numbers.first_nan = i;
    } else if (numbers.infinities++ == 0) {
      numbers.first_infinity = i;
    }
  }
  return numbers;
}

Numbers LookAt(const OperandSpec& operand, const void* elements) {
  return VisitDType(operand.dtype, [&]<typename T>(std::type_identity<T>) {
    const int64_t count = operand.num_elements();
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
      return Look<float>(static_cast<const T*>(elements), count);
    } else if constexpr (std::is_floating_point_v<T>) {
      return Look<T>(static_cast<const T*>(elements), count);
    } else {
      return Numbers();
    }
  });
}

std::vector<Numbers> LookAtAll(const std::vector<OperandSpec>& operands, void* const* elements) {
  std::vector<Numbers> all;
  for (size_t i = 0; i < operands.size(); ++i) all.push_back(LookAt(operands[i], elements[i]));
  return all;
}

// Where an element is in the whole tensor: "[3, 7]".
std::string PlaceOf(const OperandSpec& operand, int64_t element, int64_t micro_batch) {
  std::vector<int64_t> place(operand.shape().rank());
  for (int axis = operand.shape().rank() - 1; axis >= 0; --axis) {
    const int64_t size = operand.shape()[axis];
    place[axis] = operand.region.offset[axis] + element % size;
    if (axis == operand.micro_batch_axis) place[axis] += micro_batch * operand.micro_batch_stride;
    element /= size;
  }
  return absl::StrCat("[", absl::StrJoin(place, ", "), "]");
}

// "input 0, f32[0:25, 0:512], from -3 to 4.5, with 2 NaN, the first at [3, 7]".
std::string TextOf(std::string_view what, size_t index, const OperandSpec& operand,
                   const Numbers& numbers, int64_t micro_batch) {
  std::string text = absl::StrFormat(
      "%s %d, %s%s", what, index, std::string(ToString(operand.dtype)), operand.region.ToString());
  if (numbers.low <= numbers.high) {
    absl::StrAppendFormat(&text, ", from %g to %g", numbers.low, numbers.high);
  }
  for (const auto& [count, first, name] :
       {std::tuple(numbers.nans, numbers.first_nan, "NaN"),
        std::tuple(numbers.infinities, numbers.first_infinity, "infinite")}) {
    if (count == 0) continue;
    absl::StrAppendFormat(&text, ", with %d %s, the first at %s", count, name,
                          PlaceOf(operand, first, micro_batch));
  }
  return text;
}

class CheckingKernel final : public Kernel {
 public:
  CheckingKernel(const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
      : inputs_(spec.inputs), outputs_(spec.outputs), kernel_(std::move(kernel)) {}

  absl::Status Run(const KernelRun& run) override {
    // Before: outputs may lie where inputs did.
    const std::vector<Numbers> inputs = LookAtAll(inputs_, run.inputs);
    BRAID_RETURN_IF_ERROR(kernel_->Run(run));
    const bool writes_inputs = outputs_.empty();
    const std::vector<Numbers> outputs =
        writes_inputs ? LookAtAll(inputs_, run.inputs) : LookAtAll(outputs_, run.outputs);
    const auto has = [](const std::vector<Numbers>& all, int64_t Numbers::*count) {
      return std::any_of(all.begin(), all.end(),
                         [&](const Numbers& one) { return one.*count > 0; });
    };
    const bool was_nan = has(inputs, &Numbers::nans);
    const bool was_infinite = was_nan || has(inputs, &Numbers::infinities);
    const bool is_nan = has(outputs, &Numbers::nans) && (!was_nan || writes_inputs);
    const bool is_infinite = has(outputs, &Numbers::infinities) && !was_infinite && !inputs.empty();
    if (!is_nan && !is_infinite) return absl::OkStatus();
    const char* what = !is_nan   ? "it makes an infinity"
                       : was_nan ? "it takes NaN to a variable that no operator made: it came from "
                                   "a feed, a dataset or another variable"
                                 : "it makes NaN";
    std::vector<std::string> texts;
    const std::vector<OperandSpec>& written = writes_inputs ? inputs_ : outputs_;
    Append(writes_inputs ? "afterwards input" : "output", written, outputs, run, texts);
    Append(writes_inputs ? "before input" : "input", inputs_, inputs, run, texts);
    return absl::OutOfRangeError(
        absl::StrFormat("%s in step %d: %s", what, run.step, absl::StrJoin(texts, "; ")));
  }

 private:
  static void Append(std::string_view what, const std::vector<OperandSpec>& operands,
                     const std::vector<Numbers>& numbers, const KernelRun& run,
                     std::vector<std::string>& texts) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!IsFloating(operands[i].dtype)) continue;
      texts.push_back(TextOf(what, i, operands[i], numbers[i], run.micro_batch));
    }
  }

  const std::vector<OperandSpec> inputs_, outputs_;
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Kernel> CheckNumerics(const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
  return std::make_unique<CheckingKernel>(spec, std::move(kernel));
}

}  // namespace braid
