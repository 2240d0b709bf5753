// One run of one CPU kernel in a test: operands as doubles in, results as doubles out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/kernels/kernel.h"

namespace braid {

using Values = std::vector<double>;

inline void Store(DType dtype, double value, void* to) {
  switch (dtype) {
    case DType::kF32:
      *static_cast<float*>(to) = static_cast<float>(value);
      break;
    case DType::kF64:
      *static_cast<double*>(to) = value;
      break;
    case DType::kBF16:
      *static_cast<BFloat16*>(to) = BFloat16(static_cast<float>(value));
      break;
    case DType::kF16:
      *static_cast<Float16*>(to) = Float16(static_cast<float>(value));
      break;
    case DType::kI32:
      *static_cast<int32_t*>(to) = static_cast<int32_t>(value);
      break;
    case DType::kI64:
      *static_cast<int64_t*>(to) = static_cast<int64_t>(value);
      break;
    default:
      *static_cast<uint8_t*>(to) = static_cast<uint8_t>(value);
      break;
  }
}

inline double Load(DType dtype, const void* from) {
  switch (dtype) {
    case DType::kF32:
      return *static_cast<const float*>(from);
    case DType::kF64:
      return *static_cast<const double*>(from);
    case DType::kBF16:
      return static_cast<float>(*static_cast<const BFloat16*>(from));
    case DType::kF16:
      return static_cast<float>(*static_cast<const Float16*>(from));
    case DType::kI32:
      return *static_cast<const int32_t*>(from);
    case DType::kI64:
      return static_cast<double>(*static_cast<const int64_t*>(from));
    default:
      return *static_cast<const uint8_t*>(from);
  }
}

// Unit roundoff, for tolerances.
inline double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 6e-8;
    case DType::kF64:
      return 1.2e-16;
    case DType::kBF16:
      return 4e-3;
    case DType::kF16:
      return 5e-4;
    default:
      return 0;
  }
}

// What a value becomes when stored as dtype.
inline double Rounded(DType dtype, double value) {
  double buffer = 0;
  Store(dtype, value, &buffer);
  return Load(dtype, &buffer);
}

inline Values RandomValues(const Shape& shape, DType dtype, uint32_t seed, double low = -1,
                           double high = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(low, high);
  Values values(shape.num_elements());
  for (double& value : values) value = Rounded(dtype, distribution(generator));
  return values;
}

// The multi-index of element `flat` of a dense tensor.
inline std::vector<int64_t> IndexOf(const Shape& shape, int64_t flat) {
  std::vector<int64_t> index(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index;
}

inline int64_t FlatOf(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t flat = 0;
  for (int i = 0; i < shape.rank(); ++i) flat = flat * shape[i] + index[i];
  return flat;
}

// The elements of a logical tensor that a region holds.
inline Values Cut(const Values& whole, const Shape& logical, const Region& region) {
  Values part(region.size.num_elements());
  for (size_t i = 0; i < part.size(); ++i) {
    std::vector<int64_t> index = IndexOf(region.size, static_cast<int64_t>(i));
    for (size_t d = 0; d < index.size(); ++d) index[d] += region.offset[d];
    part[i] = whole[FlatOf(logical, index)];
  }
  return part;
}

class KernelCase {
 public:
  explicit KernelCase(std::string op, Attrs attrs = {}) {
    spec_.op = std::move(op);
    spec_.name = "test/" + spec_.op;
    spec_.attrs = std::move(attrs);
    spec_.seed = 7;
  }

  KernelSpec& spec() { return spec_; }
  KernelRun& run() { return run_; }

  static OperandSpec Operand(DType dtype, const Shape& logical) {
    OperandSpec operand;
    operand.dtype = dtype;
    operand.logical = logical;
    operand.region = Region::Whole(logical);
    return operand;
  }

  // Values of the region.
  KernelCase& In(OperandSpec operand, const Values& values) {
    std::vector<char> bytes(values.size() * SizeOf(operand.dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      Store(operand.dtype, values[i], bytes.data() + i * SizeOf(operand.dtype));
    }
    EXPECT_EQ(operand.num_elements(), static_cast<int64_t>(values.size()));
    spec_.inputs.push_back(std::move(operand));
    inputs_.push_back(std::move(bytes));
    return *this;
  }
  KernelCase& In(DType dtype, const Shape& shape, const Values& values) {
    return In(Operand(dtype, shape), values);
  }
  KernelCase& Out(OperandSpec operand) {
    // What was there before must not matter.
    outputs_.emplace_back(operand.num_elements() * SizeOf(operand.dtype), '\x5a');
    spec_.outputs.push_back(std::move(operand));
    return *this;
  }
  KernelCase& Out(DType dtype, const Shape& shape) { return Out(Operand(dtype, shape)); }

  // Output 0 takes the bytes of this input.
  KernelCase& Inplace(int input) {
    inplace_ = input;
    return *this;
  }

  absl::Status Create() {
    static const KernelRegistry& registry = *new KernelRegistry(CpuKernels());  // for every case
    auto kernel = registry.Create(spec_);
    if (!kernel.ok()) return kernel.status();
    kernel_ = *std::move(kernel);
    return absl::OkStatus();
  }

  absl::Status Run() {
    if (kernel_ == nullptr) {
      if (absl::Status status = Create(); !status.ok()) return status;
    }
    std::vector<void*> inputs, outputs;
    for (auto& bytes : inputs_) inputs.push_back(bytes.data());
    for (auto& bytes : outputs_) outputs.push_back(bytes.data());
    if (inplace_ >= 0) outputs[0] = inputs[inplace_];
    run_.inputs = inputs.data();
    run_.outputs = outputs.data();
    absl::Status status = kernel_->Run(run_);
    if (status.ok() && inplace_ < 0) RunInParts();
    return status;
  }

  Values Output(int index = 0) const {
    return Read(spec_.outputs[index],
                inplace_ >= 0 && index == 0 ? inputs_[inplace_] : outputs_[index]);
  }
  Values Input(int index) const { return Read(spec_.inputs[index], inputs_[index]); }

 private:
  // A kernel that works in parts makes the same bits of them, and uses nothing of operands of all
  // elements but the part: each part of those has memory of its own here.
  void RunInParts() {
    const auto [size, step] = kernel_->parts();
    if (size == 0) return;
    auto made = outputs_;
    for (auto& bytes : made) std::fill(bytes.begin(), bytes.end(), '\x5a');
    const int64_t least = std::lcm(step, kPartVectors);
    const int64_t part = std::max<int64_t>(1, size / least / 3) * least;
    for (int64_t begin = 0; begin < size; begin += part) {
      const int64_t elements = std::min(part, size - begin);
      std::vector<PartMemory> inputs, outputs;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        inputs.emplace_back(spec_.inputs[i], inputs_[i], size, begin, elements);
      }
      for (size_t i = 0; i < made.size(); ++i) {
        outputs.emplace_back(spec_.outputs[i], made[i], size, begin, elements);
      }
      std::vector<void*> in, out;
      for (PartMemory& memory : inputs) in.push_back(memory.pointer());
      for (PartMemory& memory : outputs) out.push_back(memory.pointer());
      KernelRun run = run_;
      run.inputs = in.data();
      run.outputs = out.data();
      kernel_->RunPart(run, begin, elements);
      for (PartMemory& memory : outputs) memory.Return();
    }
    EXPECT_EQ(made, outputs_) << spec_.op << " of " << size << " elements in parts of " << part;
  }

  // An operand as RunPart is given it: of `size` elements, only those from `begin` on are there.
  class PartMemory {
   public:
    PartMemory(const OperandSpec& operand, std::vector<char>& whole, int64_t size, int64_t begin,
               int64_t elements)
        : whole_(&whole), is_cut_(operand.num_elements() == size) {
      if (!is_cut_) return;
      const auto element = static_cast<int64_t>(SizeOf(operand.dtype));
      offset_ = begin * element;
      const auto first = whole.begin() + offset_;
      part_.assign(first, first + elements * element);
    }
    void* pointer() {
      return is_cut_ ? reinterpret_cast<char*>(reinterpret_cast<intptr_t>(part_.data()) - offset_)
                     : whole_->data();
    }
    void Return() { std::copy(part_.begin(), part_.end(), whole_->begin() + offset_); }

   private:
    std::vector<char>* whole_;
    bool is_cut_;
    int64_t offset_ = 0;
    std::vector<char> part_;
  };

  static Values Read(const OperandSpec& operand, const std::vector<char>& bytes) {
    Values values(operand.num_elements());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Load(operand.dtype, bytes.data() + i * SizeOf(operand.dtype));
    }
    return values;
  }

  KernelSpec spec_;
  KernelRun run_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::vector<char>> inputs_, outputs_;
  int inplace_ = -1;
};

// |actual - expected| <= tolerance * (|expected| + floor), NaN equals NaN.
inline void ExpectNear(const Values& actual, const Values& expected, double tolerance,
                       double floor = 1) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "at " << i << ": " << actual[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << "at " << i;
    } else {
      ASSERT_NEAR(actual[i], expected[i], tolerance * (std::abs(expected[i]) + floor))
          << "at " << i;
    }
  }
}

inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

}  // namespace braid
