// Of KernelSpecs: constant, literal, iota, step, random_uniform, random_normal, dropout. Random
// numbers are those of the element's logical index, whatever the region.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/coded_elements.h"
#include "runtime/dtype_traits.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/staleness.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// What a cast of a value outside T's range would be, nobody knows.
template <class T>
absl::StatusOr<uint64_t> IntegerBits(const KernelSpec& spec, double value) {
  const double whole = std::trunc(value);
  if (whole >= static_cast<double>(std::numeric_limits<T>::min()) &&
      whole < std::ldexp(1.0, std::numeric_limits<T>::digits)) {
    return BitsOf(static_cast<T>(value));
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s '%s': the value %g does not fit into %s",
                                                    spec.op, spec.name, value,
                                                    ToString(spec.outputs[0].dtype)));
}

absl::StatusOr<uint64_t> ConstantBits(const KernelSpec& spec, double value) {
  const DType dtype = spec.outputs[0].dtype;
  if (IsCoded(dtype)) return EncodeElement(dtype, static_cast<float>(value));
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> absl::StatusOr<uint64_t> {
    if constexpr (std::is_same_v<T, bool>) {
      return value != 0 ? 1 : 0;
    } else if constexpr (std::is_integral_v<T>) {
      return IntegerBits<T>(spec, value);
    } else if constexpr (std::is_same_v<T, double>) {
      return BitsOf(value);
    } else {
      return BitsOf(T(static_cast<float>(value)));
    }
  });
}

KernelOr MakeConstant(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec& out = spec.outputs[0];
  BRAID_ASSIGN_OR_RETURN(const uint64_t bits, ConstantBits(spec, spec.attrs.Double("value")));
  const FillLaunch all = {.element_bytes = static_cast<int64_t>(SizeOf(out.dtype)),
                          .elements = out.num_elements(),
                          .bits = bits};
  return MakeKernel([&table, all](const Queue& queue, const KernelRun& run) {
    FillLaunch fill = all;
    fill.to = run.outputs[0];
    return table.rearrange.fill(queue, fill);
  });
}

KernelOr MakeStep(const KernelTable& table, const KernelSpec& spec) {
  if (spec.outputs[0].dtype != DType::kI64) return UnsupportedTypes(spec);
  return MakeStepKernel([&table](const Queue& queue, const KernelRun& run) {
    if (queue.step != nullptr) {
      return table.pointwise.copy(
          queue, {.from = queue.step, .to = run.outputs[0], .bytes = sizeof(int64_t)});
    }
    return table.rearrange.fill(queue, {.to = run.outputs[0],
                                        .element_bytes = sizeof(int64_t),
                                        .elements = 1,
                                        .bits = static_cast<uint64_t>(run.step)});
  });
}

KernelOr MakeStaleness(const KernelTable& table, const KernelSpec& spec) {
  return MakeChangingKernel([&table, counter = StalenessCounter(spec.attrs.Int("workers"))](
                                const Queue& queue, const KernelRun& run) mutable {
    return table.rearrange.fill(queue, {.to = run.outputs[0],
                                        .element_bytes = sizeof(int64_t),
                                        .elements = 1,
                                        .bits = static_cast<uint64_t>(counter.Count(run))});
  });
}

// An element as a literal's attribute has it.
template <class T>
T LiteralElement(int64_t element) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(element);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(element);
  } else {
    return T(static_cast<float>(std::bit_cast<double>(element)));
  }
}

// The bytes of all elements.
std::vector<unsigned char> LiteralBytes(const KernelSpec& spec) {
  return VisitDType(spec.outputs[0].dtype, [&]<class T>(std::type_identity<T>) {
    std::vector<unsigned char> bytes;
    for (int64_t element : spec.attrs.Ints("elements")) {
      const T value = LiteralElement<T>(element);
      const auto* from = reinterpret_cast<const unsigned char*>(&value);
      bytes.insert(bytes.end(), from, from + sizeof(T));
    }
    return bytes;
  });
}

// Where element i of the walk's operand 0 is.
int64_t OffsetOf(const Walk& walk, int64_t i) {
  int64_t offset = 0;
  for (int d = walk.rank - 1; d >= 0; --d) {
    offset += i % walk.size[d] * walk.stride[0][d];
    i /= walk.size[d];
  }
  return offset;
}

// The bytes that are here come along with launches.
KernelOr MakeLiteral(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec& out = spec.outputs[0];
  const auto element_bytes = static_cast<int64_t>(SizeOf(out.dtype));
  BRAID_ASSIGN_OR_RETURN(const LogicalWalk walk, LogicalWalkOf(out));
  return MakeKernel([&table, walk, element_bytes, n = out.num_elements(), all = LiteralBytes(spec)](
                        const Queue& queue, const KernelRun& run) {
    const int64_t first = walk.first + run.micro_batch * walk.micro_batch_stride;
    const int64_t most = LiteralLaunch::kMostBytes / element_bytes;
    LiteralLaunch launch = {};
    for (int64_t begin = 0; begin < n; begin += most) {
      const int64_t size = std::min(most, n - begin);
      launch.to = static_cast<std::byte*>(run.outputs[0]) + begin * element_bytes;
      launch.bytes = static_cast<int32_t>(size * element_bytes);
      for (int64_t i = 0; i < size; ++i) {
        std::memcpy(launch.data + i * element_bytes,
                    all.data() + (first + OffsetOf(walk.walk, begin + i)) * element_bytes,
                    element_bytes);
      }
      const Error error = table.random.literal(queue, launch);
      if (error != kDone) return error;
    }
    return kDone;
  });
}

KernelOr MakeIota(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec& out = spec.outputs[0];
  if (out.dtype == DType::kBool) return UnsupportedTypes(spec);
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(out.shape(), axis);
  return MakeKernel([&table, out, axis, view](const Queue& queue, const KernelRun& run) {
    return table.random.iota(queue, {.to = run.outputs[0],
                                     .dtype = out.dtype,
                                     .elements = out.num_elements(),
                                     .size = view.size,
                                     .inner = view.inner,
                                     .first = OffsetAt(out, axis, run.micro_batch)});
  });
}

// `key`: whose numbers.
KernelOr MakeRandom(const KernelTable& table, const KernelSpec& spec, std::string_view key,
                    RandomLaunch all) {
  const OperandSpec& out = spec.outputs[0];
  const bool has_input = !spec.inputs.empty();
  if (!IsFloating(out.dtype) || (has_input && spec.inputs[0].dtype != out.dtype)) {
    return UnsupportedTypes(spec);
  }
  BRAID_ASSIGN_OR_RETURN(const LogicalWalk walk, LogicalWalkOf(out));
  all.dtype = out.dtype;
  all.walk = walk.walk;
  const RandomKey random_key = MakeRandomKey(spec.seed, key, /*step=*/0);
  std::copy(random_key.key.begin(), random_key.key.end(), all.key);
  return MakeStepKernel([&table, all, walk, has_input](const Queue& queue, const KernelRun& run) {
    RandomLaunch launch = all;
    launch.to = run.outputs[0];
    launch.x = has_input ? run.inputs[0] : nullptr;
    launch.step = run.step;
    launch.step_now = queue.step;
    launch.first = walk.first + run.micro_batch * walk.micro_batch_stride;
    return table.random.random(queue, launch);
  });
}

KernelOr MakeUniform(const KernelTable& table, const KernelSpec& spec) {
  const double low = spec.attrs.Double("low");
  return MakeRandom(
      table, spec, spec.name,
      {.kind = RandomLaunch::Kind::kUniform, .a = low, .b = spec.attrs.Double("high") - low});
}

KernelOr MakeNormal(const KernelTable& table, const KernelSpec& spec) {
  return MakeRandom(table, spec, spec.name,
                    {.kind = RandomLaunch::Kind::kNormal,
                     .a = spec.attrs.Double("mean"),
                     .b = spec.attrs.Double("stddev")});
}

KernelOr MakeDropout(const KernelTable& table, const KernelSpec& spec) {
  const double rate = spec.attrs.Double("rate");
  return MakeRandom(table, spec, spec.attrs.String("key"),
                    {.kind = RandomLaunch::Kind::kDropout, .a = rate, .b = 1 / (1 - rate)});
}

}  // namespace

absl::Status RegisterRandomKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name,
                             [&table, make](const KernelSpec& spec) { return make(table, spec); });
  };
  BRAID_RETURN_IF_ERROR(add("constant", MakeConstant));
  BRAID_RETURN_IF_ERROR(add("literal", MakeLiteral));
  BRAID_RETURN_IF_ERROR(add("iota", MakeIota));
  BRAID_RETURN_IF_ERROR(add("step", MakeStep));
  BRAID_RETURN_IF_ERROR(add("staleness", MakeStaleness));
  BRAID_RETURN_IF_ERROR(add("random_uniform", MakeUniform));
  BRAID_RETURN_IF_ERROR(add("random_normal", MakeNormal));
  return add("dropout", MakeDropout);
}

}  // namespace braid::cuda
