// Session's plain files of weights: found by name, converted, cut and put together on the master;
// devices get and give their parts as with Set and Get.

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/session_impl.h"
#include "runtime/base/status.h"
#include "runtime/files/weight_files.h"

namespace braid {
namespace {

// What is held in memory beside the variables while they are read or gathered.
constexpr int64_t kBatchBytes = 256 << 20;
constexpr size_t kMostNames = 10;

std::string ListNames(std::vector<std::string> names) {
  const size_t count = names.size();
  if (count > kMostNames) names.resize(kMostNames);
  std::string list = absl::StrJoin(names, ", ");
  if (count > kMostNames) list += absl::StrFormat(", and %d more", count - kMostNames);
  return list;
}

// What is not read of a folder is said.
absl::StatusOr<WeightFiles> OpenWeights(const std::string& path) {
  BRAID_ASSIGN_OR_RETURN(WeightFiles files, WeightFiles::Open(path));
  if (!files.ignored().empty()) {
    LOG(WARNING) << "LoadWeights of '" << path << "': its .safetensors files are read, and "
                 << files.ignored().size()
                 << " .npy beside them are not: " << ListNames(files.ignored());
  }
  return files;
}

std::optional<WeightSource> SourceOf(const WeightsOptions& options, const std::string& variable) {
  if (!options.rule) return WeightSource{.name = variable};
  return options.rule(variable);
}

Shape SwapLast(Shape shape) {
  const int rank = shape.rank();
  std::swap(shape[rank - 2], shape[rank - 1]);
  return shape;
}

// The shape of a tensor in a file, of which one of `source.parts` parts is `variable`.
absl::StatusOr<Shape> StoredShape(const std::string& name, const Shape& variable,
                                  const WeightSource& source) {
  Shape shape = variable;
  const int rank = shape.rank();
  if (source.transpose && rank < 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s' is %s: it has no two axes to transpose", name, shape.ToString()));
  }
  if (source.transpose) shape = SwapLast(std::move(shape));
  if (source.parts == 1 && source.part == 0) return shape;
  if (source.parts < 1 || source.part < 0 || source.part >= source.parts || source.axis < 0 ||
      source.axis >= rank) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s' is %s: part %d of %d along axis %d of tensor '%s' is none; parts count from "
        "0 and the axis is one of the variable's",
        name, shape.ToString(), source.part, source.parts, source.axis, source.name));
  }
  shape[static_cast<int>(source.axis)] *= source.parts;
  return shape;
}

// Copies a part between a tensor of a file and an array of the part alone, in either direction.
enum class Direction { kOutOfWhole, kIntoWhole };
void CopyPart(Direction direction, const WeightSource& source, Array& whole, Array& part) {
  int64_t outer = 1, run = static_cast<int64_t>(SizeOf(part.dtype()));
  for (int axis = 0; axis < part.shape().rank(); ++axis) {
    (axis < source.axis ? outer : run) *= part.shape()[axis];
  }
  for (int64_t i = 0; i < outer; ++i) {
    std::byte* const in_whole = whole.mutable_bytes() + (i * source.parts + source.part) * run;
    std::byte* const in_part = part.mutable_bytes() + i * run;
    const bool is_into = direction == Direction::kIntoWhole;
    std::memcpy(is_into ? in_whole : in_part, is_into ? in_part : in_whole,
                static_cast<size_t>(run));
  }
}

template <typename T>
void TransposeMatrices(const std::byte* from, std::byte* to, const Shape& shape) {
  const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  const int64_t size = rows * columns;
  if (size == 0) return;
  for (int64_t matrix = 0; matrix < shape.num_elements() / size; ++matrix) {
    const T* source = reinterpret_cast<const T*>(from) + matrix * size;
    T* out = reinterpret_cast<T*>(to) + matrix * size;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        out[column * rows + row] = source[row * columns + column];
      }
    }
  }
}

Array Transposed(const Array& array) {
  Array out(array.dtype(), SwapLast(array.shape()));
  VisitDType(array.dtype(), [&]<typename T>(std::type_identity<T>) {
    TransposeMatrices<T>(array.bytes(), out.mutable_bytes(), array.shape());
  });
  return out;
}

// A variable's value out of the tensor that holds it.
Array ValueOf(Array stored, const WeightSource& source, const TensorType& type) {
  if (source.parts > 1) {
    Array part(stored.dtype(), source.transpose ? SwapLast(type.shape) : type.shape);
    CopyPart(Direction::kOutOfWhole, source, stored, part);
    stored = std::move(part);
  }
  if (source.transpose) stored = Transposed(stored);
  return stored.dtype() == type.dtype ? std::move(stored) : stored.As(type.dtype);
}

absl::Status CheckFits(const std::string& path, const StoredTensor& stored, const Shape& wanted,
                       const std::string& variable, const TensorType& type) {
  const TensorType have{stored.dtype, stored.shape};
  if (IsFloating(stored.dtype) != IsFloating(type.dtype) ||
      (!IsFloating(type.dtype) && stored.dtype != type.dtype)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s' is %s; tensor '%s' of '%s' is %s; only floating types are converted",
        variable, type.ToString(), stored.name, path, have.ToString()));
  }
  if (stored.shape == wanted) return absl::OkStatus();
  const bool fits_transposed = wanted.rank() >= 2 && stored.shape.rank() == wanted.rank() &&
                               SwapLast(stored.shape) == wanted;
  return absl::InvalidArgumentError(absl::StrFormat(
      "variable '%s' is %s, for which '%s' of '%s' should be %s; it is %s%s", variable,
      type.ToString(), stored.name, path, wanted.ToString(), have.ToString(),
      fits_transposed ? "; it fits with WeightSource::transpose the other way"
                      : "; the model or the rule for its names is another one"));
}

}  // namespace

// Optimizers' states are named under the variable that they belong to, and are not trained.
bool Session::Impl::IsState(const std::string& variable) const {
  const Attrs& attrs = variables_.at(variable).attrs;
  const bool is_trained = !attrs.Has("trainable") || attrs.Bool("trainable");
  const size_t dot = variable.rfind('.');
  return !is_trained && dot != std::string::npos && variables_.contains(variable.substr(0, dot));
}

absl::Status Session::LoadWeights(const std::string& path, const WeightsOptions& options) {
  return impl_->ByMaster(absl::StrFormat("LoadWeights of '%s'", path),
                         [&] { return impl_->LoadWeights(path, options); });
}

absl::Status Session::SaveWeights(const std::string& path, const WeightsOptions& options) {
  return impl_->ByMaster(absl::StrFormat("SaveWeights to '%s'", path),
                         [&] { return impl_->SaveWeights(path, options); });
}

absl::Status Session::Impl::LoadWeights(const std::string& path, const WeightsOptions& options) {
  const Activity activity(this, absl::StrFormat("loading weights from '%s'", path));
  const absl::StatusOr<WeightFiles> opened = OpenWeights(path);
  if (!opened.ok()) return LocalError(opened.status());
  std::map<std::string, const StoredTensor*> tensors;  // without the prefix
  const std::vector<StoredTensor> all = opened->tensors();
  for (const StoredTensor& tensor : all) {
    const bool has_prefix = tensor.name.starts_with(options.prefix);
    const std::string name = has_prefix ? tensor.name.substr(options.prefix.size()) : tensor.name;
    const auto [other, is_new] = tensors.try_emplace(name, &tensor);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' has '%s' and '%s', which are one name without the prefix '%s'; leave the prefix "
        "away, or one of them",
        path, other->second->name, tensor.name, options.prefix));
  }
  struct Wanted {
    std::string variable;
    const VariableInfo* info;
    WeightSource source;  // with the file's own name
  };
  std::vector<Wanted> wanted;
  std::vector<std::string> missing, extra;
  std::map<std::string, bool> is_taken;
  for (const auto& [name, info] : variables_) {
    if (IsState(name)) continue;
    std::optional<WeightSource> source = SourceOf(options, name);
    if (!source.has_value()) continue;
    const auto found = tensors.find(source->name);
    if (found == tensors.end()) {
      missing.push_back(source->name == name
                            ? absl::StrFormat("'%s'", name)
                            : absl::StrFormat("'%s' (of variable '%s')", source->name, name));
      continue;
    }
    BRAID_ASSIGN_OR_RETURN(const Shape shape, StoredShape(name, info.type.shape, *source));
    BRAID_RETURN_IF_ERROR(CheckFits(path, *found->second, shape, name, info.type));
    is_taken[source->name] = true;
    source->name = found->second->name;
    wanted.push_back({name, &info, *std::move(source)});
  }
  for (const auto& [name, tensor] : tensors) {
    const bool is_ignored = options.ignore && options.ignore(name);
    if (!is_taken[name] && !is_ignored) extra.push_back(absl::StrFormat("'%s'", name));
  }
  const std::string extra_text = ListNames(extra);
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "'%s' lacks %d tensors: %s; it has others that no variable takes: %s; name them by "
        "WeightsOptions::rule, which may also leave a variable out",
        path, missing.size(), ListNames(missing), extra.empty() ? "none" : extra_text));
  }
  if (!extra.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' has %d tensors that no variable takes: %s; if the model does without them, say so by "
        "WeightsOptions::ignore",
        path, extra.size(), extra_text));
  }
  if (wanted.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "LoadWeights of '%s': no compiled job has a variable that it holds; compile first", path));
  }
  std::map<std::string, Array> values;
  std::map<std::string, const Array*> batch;
  int64_t bytes = 0;
  for (const Wanted& each : wanted) {
    absl::StatusOr<Array> stored = opened->Read(each.source.name);
    if (!stored.ok()) return LocalError(stored.status());
    Array& value = values[each.variable];
    value = ValueOf(*std::move(stored), each.source, each.info->type);
    batch[each.variable] = &value;
    bytes += static_cast<int64_t>(value.num_bytes());
    if (bytes < kBatchBytes && &each != &wanted.back()) continue;
    BRAID_RETURN_IF_ERROR(Set(batch));
    batch.clear();
    values.clear();
    bytes = 0;
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::SaveWeights(const std::string& path, const WeightsOptions& options) {
  if (options_.dry_run) return absl::CancelledError("--dry_run: nothing is saved");
  const Activity activity(this, absl::StrFormat("saving weights to '%s'", path));
  struct Gathered {
    Array array;
    std::vector<std::string> parts;  // variable of each part; "": not seen
  };
  std::map<std::string, Gathered> tensors;
  for (const auto& [name, info] : variables_) {
    if (IsState(name)) continue;
    const std::optional<WeightSource> source = SourceOf(options, name);
    if (!source.has_value()) continue;
    BRAID_ASSIGN_OR_RETURN(const Shape shape, StoredShape(name, info.type.shape, *source));
    const TensorType type{info.type.dtype, shape};
    const std::string prefix = source->outside_prefix ? std::string() : options.prefix;
    Gathered& whole = tensors[prefix + source->name];
    if (whole.parts.empty()) {
      whole = {Array(type.dtype, shape), std::vector<std::string>(source->parts)};
    }
    const TensorType have{whole.array.dtype(), whole.array.shape()};
    if (have != type || static_cast<int64_t>(whole.parts.size()) != source->parts ||
        !whole.parts[source->part].empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s': variable '%s' as its part %d of %d makes it %s; others, as '%s', make it "
          "%s of %d parts; the rule must give every part to one variable",
          source->name, name, source->part, source->parts, type.ToString(),
          absl::StrJoin(whole.parts, " "), have.ToString(), whole.parts.size()));
    }
    whole.parts[source->part] = name;
    BRAID_ASSIGN_OR_RETURN(Array value, Get(name));
    if (source->transpose) value = Transposed(value);
    CopyPart(Direction::kIntoWhole, *source, whole.array, value);
  }
  std::vector<TensorBytes> stored;
  for (const auto& [name, whole] : tensors) {
    const auto hole = std::find(whole.parts.begin(), whole.parts.end(), "");
    if (hole != whole.parts.end()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' has %d parts and no variable is part %d; the rule must give every part to "
          "one variable",
          name, whole.parts.size(), hole - whole.parts.begin()));
    }
    stored.push_back({{name, whole.array.dtype(), whole.array.shape()}, whole.array.bytes()});
  }
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());
  absl::Status written = WriteSafetensors(temporary, stored, {{"format", "pt"}});
  if (written.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = ErrnoStatus(errno, "replace", path);
  }
  if (!written.ok()) unlink(temporary.c_str());
  return LocalError(written);
}

}  // namespace braid
