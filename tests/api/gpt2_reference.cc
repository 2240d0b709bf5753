#include "tests/api/gpt2_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/files/weight_files.h"

namespace braid {
namespace {

using Numbers = std::vector<double>;

class Model {
 public:
  Model(const WeightFiles* files, std::string prefix, const Gpt2Shape& shape)
      : files_(files), prefix_(std::move(prefix)), shape_(shape) {}

  Numbers Logits(const std::vector<int32_t>& tokens) {
    const int64_t width = shape_.width;
    const Numbers wte = Read("wte.weight"), wpe = Read("wpe.weight");
    Numbers x;
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (int64_t c = 0; c < width; ++c) {
        x.push_back(wte[tokens[t] * width + c] + wpe[static_cast<int64_t>(t) * width + c]);
      }
    }
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string name = absl::StrCat("h.", layer, ".");
      AddTo(x, Attend(Norm(x, name + "ln_1"), name + "attn."));
      Numbers h = Project(Norm(x, name + "ln_2"), name + "mlp.c_fc", width);
      for (double& value : h) {
        const double inner =
            std::sqrt(2 / std::numbers::pi) * (value + 0.044715 * value * value * value);
        value = 0.5 * value * (1 + std::tanh(inner));
      }
      AddTo(x, Project(h, name + "mlp.c_proj", 4 * width));
    }
    x = Norm(x, "ln_f");
    Numbers logits;
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (int64_t v = 0; v < shape_.vocabulary; ++v) {
        double sum = 0;
        for (int64_t c = 0; c < width; ++c) {
          sum += x[static_cast<int64_t>(t) * width + c] * wte[v * width + c];
        }
        logits.push_back(sum);
      }
    }
    return logits;
  }

  const absl::Status& status() const { return status_; }

 private:
  Numbers Read(const std::string& name) {
    absl::StatusOr<Array> array = files_->Read(prefix_ + name);
    if (!array.ok()) {
      status_ = array.status();
      return Numbers(1 << 16);
    }
    const Array wide = array->As(DType::kF64);
    return {wide.data<double>().begin(), wide.data<double>().end()};
  }

  static void AddTo(Numbers& x, const Numbers& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Numbers Norm(const Numbers& x, const std::string& name) {
    const Numbers gain = Read(name + ".weight"), bias = Read(name + ".bias");
    const int64_t width = shape_.width;
    Numbers y(x.size());
    for (size_t row = 0; row < x.size(); row += width) {
      double mean = 0, square = 0;
      for (int64_t c = 0; c < width; ++c) mean += x[row + c] / width;
      for (int64_t c = 0; c < width; ++c) square += std::pow(x[row + c] - mean, 2) / width;
      for (int64_t c = 0; c < width; ++c) {
        y[row + c] = (x[row + c] - mean) / std::sqrt(square + 1e-5) * gain[c] + bias[c];
      }
    }
    return y;
  }

  // Rows of x [.., in] times weight [in, out], and a bias.
  Numbers Project(const Numbers& x, const std::string& name, int64_t in) {
    const Numbers weight = Read(name + ".weight"), bias = Read(name + ".bias");
    const auto out = static_cast<int64_t>(bias.size());
    Numbers y;
    for (size_t row = 0; row < x.size(); row += in) {
      for (int64_t j = 0; j < out; ++j) {
        double sum = bias[j];
        for (int64_t i = 0; i < in; ++i) sum += x[row + i] * weight[i * out + j];
        y.push_back(sum);
      }
    }
    return y;
  }

  Numbers Attend(const Numbers& x, const std::string& name) {
    const int64_t width = shape_.width, depth = width / shape_.heads;
    const auto time = static_cast<int64_t>(x.size()) / width;
    const Numbers qkv = Project(x, name + "c_attn", width);  // rows of q, k, v side by side
    Numbers mixed(x.size());
    for (int64_t head = 0; head < shape_.heads; ++head) {
      for (int64_t i = 0; i < time; ++i) {
        const double* q = &qkv[i * 3 * width + head * depth];
        Numbers weights;
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          const double* k = &qkv[j * 3 * width + width + head * depth];
          double score = 0;
          for (int64_t c = 0; c < depth; ++c) score += q[c] * k[c];
          weights.push_back(std::exp(score / std::sqrt(depth)));
          sum += weights.back();
        }
        for (int64_t j = 0; j <= i; ++j) {
          const double* v = &qkv[j * 3 * width + 2 * width + head * depth];
          for (int64_t c = 0; c < depth; ++c) {
            mixed[i * width + head * depth + c] += weights[j] / sum * v[c];
          }
        }
      }
    }
    return Project(mixed, name + "c_proj", width);
  }

  const WeightFiles* files_;
  std::string prefix_;
  Gpt2Shape shape_;
  absl::Status status_;
};

}  // namespace

absl::Status WriteGpt2Weights(const std::string& path, const Gpt2Shape& shape,
                              const std::string& prefix) {
  const int64_t width = shape.width;
  std::vector<StoredTensor> tensors = {{"wte.weight", DType::kF32, {shape.vocabulary, width}},
                                       {"wpe.weight", DType::kF32, {shape.context, width}},
                                       {"ln_f.weight", DType::kF32, Shape{width}},
                                       {"ln_f.bias", DType::kF32, Shape{width}}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto add = [&](const char* name, Shape dims) {
      tensors.push_back({absl::StrCat("h.", layer, ".", name), DType::kF32, std::move(dims)});
    };
    for (const char* norm : {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"}) {
      add(norm, Shape{width});
    }
    add("attn.bias", {1, 1, shape.context, shape.context});  // the mask of older files
    add("attn.c_attn.weight", {width, 3 * width});
    add("attn.c_attn.bias", Shape{3 * width});
    add("attn.c_proj.weight", {width, width});
    add("attn.c_proj.bias", Shape{width});
    add("mlp.c_fc.weight", {width, 4 * width});
    add("mlp.c_fc.bias", Shape{4 * width});
    add("mlp.c_proj.weight", {4 * width, width});
    add("mlp.c_proj.bias", Shape{width});
  }
  std::vector<Array> arrays;
  for (StoredTensor& tensor : tensors) {
    const RandomKey key = MakeRandomKey(5, tensor.name, 0);
    const bool is_gain = tensor.name.find("ln_") != std::string::npos;
    Array& array = arrays.emplace_back(DType::kF32, tensor.shape);
    for (int64_t i = 0; i < array.num_elements(); ++i) {
      const double drawn = 2 * UniformDoubleAt(key, i) - 1;
      array.mutable_data<float>()[i] = static_cast<float>(
          is_gain && tensor.name.ends_with("weight") ? 1 + 0.5 * drawn : 0.5 * drawn);
    }
    tensor.name = prefix + tensor.name;
  }
  std::vector<TensorBytes> bytes;
  for (size_t i = 0; i < tensors.size(); ++i) bytes.push_back({tensors[i], arrays[i].bytes()});
  return WriteSafetensors(path, bytes, {});
}

absl::StatusOr<std::vector<double>> Gpt2Logits(const std::string& path, const std::string& prefix,
                                               const Gpt2Shape& shape,
                                               const std::vector<int32_t>& tokens) {
  BRAID_ASSIGN_OR_RETURN(const WeightFiles files, WeightFiles::Open(path));
  Model model(&files, prefix, shape);
  std::vector<double> logits = model.Logits(tokens);
  BRAID_RETURN_IF_ERROR(model.status());
  return logits;
}

}  // namespace braid
