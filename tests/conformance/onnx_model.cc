#include "tests/conformance/onnx_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"
#include "tests/conformance/onnx_subset.pb.h"

namespace braid::conformance {
namespace {

using Ints = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

absl::Status Lacking(const std::string& what) { return absl::UnimplementedError(what); }

template <class Message>
absl::StatusOr<Message> ReadMessage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Message message;
  if (!file || !message.ParseFromIstream(&file)) {
    return absl::DataLossError(absl::StrCat("cannot read ", path));
  }
  return message;
}

absl::StatusOr<DType> DTypeOf(int onnx_type) {
  switch (onnx_type) {
    case 1:
      return DType::kF32;
    case 6:
      return DType::kI32;
    case 7:
      return DType::kI64;
    case 9:
      return DType::kBool;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 16:
      return DType::kBF16;
    default:
      return Lacking(absl::StrCat("element type ", onnx_type));
  }
}

absl::StatusOr<Array> ToArray(const onnx::Tensor& tensor) {
  ASSIGN_OR_RETURN(const DType dtype, DTypeOf(tensor.data_type()));
  Array array(dtype, Shape(Ints(tensor.dims().begin(), tensor.dims().end())));
  const auto copy = [&](const void* from, size_t bytes) -> absl::StatusOr<Array> {
    if (bytes != array.num_bytes()) return absl::DataLossError("wrong number of bytes");
    if (bytes > 0) std::memcpy(array.mutable_bytes(), from, bytes);
    return array;
  };
  if (tensor.has_raw_data()) return copy(tensor.raw_data().data(), tensor.raw_data().size());
  switch (dtype) {
    case DType::kF32:
      return copy(tensor.float_data().data(), tensor.float_data_size() * 4);
    case DType::kF64:
      return copy(tensor.double_data().data(), tensor.double_data_size() * 8);
    case DType::kI64:
      return copy(tensor.int64_data().data(), tensor.int64_data_size() * 8);
    case DType::kI32:
      return copy(tensor.int32_data().data(), tensor.int32_data_size() * 4);
    default:
      break;
  }
  // Narrow types stand in the lower bits of int32_data.
  const size_t size = SizeOf(dtype);
  std::string bytes;
  for (int32_t word : tensor.int32_data()) {
    bytes.append(reinterpret_cast<const char*>(&word), size);
  }
  return copy(bytes.data(), bytes.size());
}

// A node while it is translated.
class NodeView {
 public:
  NodeView(const onnx::Node& node, Tensors inputs, const std::map<TensorId, Array>& known)
      : node_(node), inputs_(std::move(inputs)), known_(known) {}

  const std::string& type() const { return node_.op_type(); }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return node_.output_size(); }
  bool HasInput(int i) const { return i < num_inputs() && inputs_[i].valid(); }
  Tensor in(int i) const { return inputs_[i]; }
  const Tensors& inputs() const { return inputs_; }
  int rank(int i = 0) const { return in(i).shape().rank(); }
  LogicalGraph& graph() const { return *inputs_[0].graph(); }

  const onnx::Attribute* Find(const char* name) const {
    for (const onnx::Attribute& attribute : node_.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }
  int64_t Int(const char* name, int64_t otherwise) const {
    return Find(name) != nullptr ? Find(name)->i() : otherwise;
  }
  double Float(const char* name, double otherwise) const {
    return Find(name) != nullptr ? Find(name)->f() : otherwise;
  }
  std::string Text(const char* name, const char* otherwise) const {
    return Find(name) != nullptr ? Find(name)->s() : otherwise;
  }
  std::optional<Ints> List(const char* name) const {
    if (Find(name) == nullptr) return std::nullopt;
    return Ints(Find(name)->ints().begin(), Find(name)->ints().end());
  }
  // The value of an input that Braid has as an attribute.
  absl::StatusOr<std::vector<double>> Known(int i) const {
    const auto found = known_.find(in(i).id());
    if (found == known_.end()) return Lacking("a computed parameter");
    const Array wide = found->second.As(DType::kF64);
    return std::vector<double>(wide.data<double>().begin(), wide.data<double>().end());
  }
  // The attribute, else input i, else nothing.
  absl::StatusOr<std::optional<Ints>> ListOrInput(const char* name, int i) const {
    if (Find(name) != nullptr || !HasInput(i)) return List(name);
    ASSIGN_OR_RETURN(const std::vector<double> values, Known(i));
    return Ints(values.begin(), values.end());
  }

 private:
  const onnx::Node& node_;
  Tensors inputs_;
  const std::map<TensorId, Array>& known_;
};

using Translator = std::function<absl::StatusOr<Tensors>(const NodeView&)>;

Translator Unary(Tensor (*f)(Tensor, SourceLocation)) {
  return [f](const NodeView& n) { return Tensors{f(n.in(0), Here())}; };
}

Translator Binary(Tensor (*f)(Tensor, Tensor, SourceLocation)) {
  return [f](const NodeView& n) { return Tensors{f(n.in(0), n.in(1), Here())}; };
}

// f over any number of inputs.
Translator Folded(Tensor (*f)(Tensor, Tensor, SourceLocation), bool mean = false) {
  return [f, mean](const NodeView& n) {
    Tensor result = n.in(0);
    for (int i = 1; i < n.num_inputs(); ++i) result = f(result, n.in(i), Here());
    return Tensors{mean ? Scale(result, 1.0 / n.num_inputs()) : result};
  };
}

Translator Reduction(Tensor (*reduce)(Tensor, ReduceOptions, SourceLocation),
                     std::function<Tensor(Tensor)> before = nullptr,
                     std::function<Tensor(Tensor)> after = nullptr) {
  return [=](const NodeView& n) -> absl::StatusOr<Tensors> {
    ASSIGN_OR_RETURN(const std::optional<Ints> axes, n.ListOrInput("axes", 1));
    Tensor x = before ? before(n.in(0)) : n.in(0);
    if (!axes.value_or(Ints()).empty() || n.Int("noop_with_empty_axes", 0) == 0) {
      x = reduce(x, {.axes = axes.value_or(Ints()), .keep_dims = n.Int("keepdims", 1) != 0},
                 Here());
    }
    return Tensors{after ? after(x) : x};
  };
}

// f works on the last axis.
Translator AlongAxis(std::function<Tensor(Tensor)> f) {
  return [f](const NodeView& n) {
    const int64_t axis = (n.Int("axis", -1) + n.rank()) % n.rank();
    Ints swap(n.rank());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[axis], swap.back());
    return Tensors{Transpose(f(Transpose(n.in(0), swap)), swap)};
  };
}

absl::StatusOr<Tensors> TranslateGemm(const NodeView& n) {
  Tensor y =
      MatMul(n.in(0), n.in(1),
             {.transpose_a = n.Int("transA", 0) != 0, .transpose_b = n.Int("transB", 0) != 0});
  y = Scale(y, n.Float("alpha", 1));
  if (n.HasInput(2)) y = Add(y, Scale(n.in(2), n.Float("beta", 1)));
  return Tensors{y};
}

absl::StatusOr<Tensors> TranslateTranspose(const NodeView& n) {
  Ints reversed(n.rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return Tensors{Transpose(n.in(0), n.List("perm").value_or(reversed))};
}

absl::StatusOr<Tensors> TranslateReshape(const NodeView& n) {
  ASSIGN_OR_RETURN(std::optional<Ints> shape, n.ListOrInput("shape", 1));
  for (size_t i = 0; i < shape->size(); ++i) {
    if ((*shape)[i] == 0 && n.Int("allowzero", 0) == 0) {
      (*shape)[i] = n.in(0).shape()[static_cast<int>(i)];
    }
  }
  return Tensors{Reshape(n.in(0), Shape(*shape))};
}

absl::StatusOr<Tensors> TranslateFlatten(const NodeView& n) {
  const int64_t axis = n.Int("axis", 1), rank = n.rank();
  const Shape shape = n.in(0).shape();
  int64_t rows = 1;
  for (int i = 0; i < (axis < 0 ? axis + rank : axis); ++i) rows *= shape[i];
  return Tensors{Reshape(n.in(0), {rows, rows == 0 ? 0 : shape.num_elements() / rows})};
}

absl::StatusOr<Tensors> TranslateSqueeze(const NodeView& n) {
  ASSIGN_OR_RETURN(std::optional<Ints> axes, n.ListOrInput("axes", 1));
  if (!axes) return Lacking("squeeze of all axes");
  for (int64_t& axis : *axes) axis = axis < 0 ? axis + n.rank() : axis;
  std::sort(axes->rbegin(), axes->rend());
  Tensor x = n.in(0);
  for (int64_t axis : *axes) x = Squeeze(x, axis);
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateUnsqueeze(const NodeView& n) {
  ASSIGN_OR_RETURN(std::optional<Ints> axes, n.ListOrInput("axes", 1));
  const int64_t rank = n.rank() + static_cast<int64_t>(axes->size());
  for (int64_t& axis : *axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes->begin(), axes->end());
  Tensor x = n.in(0);
  for (int64_t axis : *axes) x = ExpandDims(x, axis);
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateExpand(const NodeView& n) {
  ASSIGN_OR_RETURN(std::optional<Ints> shape, n.ListOrInput("shape", 1));
  // Both ways: a 1 in the wanted shape keeps the input's size.
  const Shape& in = n.in(0).shape();
  Ints dims = *shape;
  while (static_cast<int>(dims.size()) < in.rank()) dims.insert(dims.begin(), 1);
  for (int i = 0; i < in.rank(); ++i) {
    int64_t& dim = dims[dims.size() - in.rank() + i];
    if (dim == 1) dim = in[i];
  }
  return Tensors{BroadcastTo(n.in(0), Shape(dims))};
}

absl::StatusOr<Tensors> TranslateSlice(const NodeView& n) {
  ASSIGN_OR_RETURN(const std::optional<Ints> starts, n.ListOrInput("starts", 1));
  ASSIGN_OR_RETURN(const std::optional<Ints> ends, n.ListOrInput("ends", 2));
  ASSIGN_OR_RETURN(const std::optional<Ints> axes, n.ListOrInput("axes", 3));
  ASSIGN_OR_RETURN(const std::optional<Ints> steps, n.ListOrInput("steps", 4));
  Ints begin(n.rank(), 0), size = n.in(0).shape().dims();
  for (size_t i = 0; i < starts->size(); ++i) {
    if (steps && (*steps)[i] != 1) return Lacking("slice with a step");
    int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
    if (axis < 0) axis += n.rank();
    const int64_t all = n.in(0).shape()[static_cast<int>(axis)];
    const auto clamped = [all](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + all : at, 0, all);
    };
    begin[axis] = clamped((*starts)[i]);
    size[axis] = std::max<int64_t>(0, clamped((*ends)[i]) - begin[axis]);
  }
  return Tensors{Slice(n.in(0), begin, size)};
}

absl::StatusOr<Tensors> TranslateSplit(const NodeView& n) {
  ASSIGN_OR_RETURN(const std::optional<Ints> sizes, n.ListOrInput("split", 1));
  const int64_t axis = (n.Int("axis", 0) + n.rank()) % n.rank();
  const int64_t parts = n.num_outputs(), all = n.in(0).shape()[static_cast<int>(axis)];
  return Split(n.in(0), sizes.value_or(Ints(parts, all / parts)), axis);
}

absl::StatusOr<Tensors> TranslatePad(const NodeView& n) {
  ASSIGN_OR_RETURN(const std::optional<Ints> pads, n.ListOrInput("pads", 1));
  if (n.Text("mode", "constant") != "constant") return Lacking("pad that is not constant");
  Tensor x = n.in(0);
  double value = 0;
  if (n.HasInput(2)) {
    ASSIGN_OR_RETURN(const std::vector<double> values, n.Known(2));
    value = values[0];
  }
  const Ints before(pads->begin(), pads->begin() + n.rank());
  const Ints after(pads->begin() + n.rank(), pads->end());
  if (std::any_of(pads->begin(), pads->end(), [](int64_t p) { return p < 0; })) {
    return Lacking("pad that cuts");
  }
  // Our padding is zeros.
  return Tensors{value == 0 ? Pad(x, before, after)
                            : Shift(Pad(Shift(x, -value), before, after), value)};
}

// Indices below zero count from the end.
Tensor FromStart(Tensor indices, int64_t size) {
  LogicalGraph& graph = *indices.graph();
  const Tensor zero = Constant(graph, 0, {.dtype = indices.dtype()});
  const Tensor all = Constant(graph, static_cast<double>(size), {.dtype = indices.dtype()});
  return Where(Less(indices, zero), Add(indices, all), indices);
}

absl::StatusOr<Tensors> TranslateGather(const NodeView& n) {
  const int64_t axis = (n.Int("axis", 0) + n.rank()) % n.rank();
  return Tensors{
      Gather(n.in(0), FromStart(n.in(1), n.in(0).shape()[static_cast<int>(axis)]), {.axis = axis})};
}

absl::StatusOr<Tensors> TranslateOneHot(const NodeView& n) {
  ASSIGN_OR_RETURN(const std::vector<double> depth, n.Known(1));
  ASSIGN_OR_RETURN(const std::vector<double> values, n.Known(2));
  const auto size = static_cast<int64_t>(depth[0]);
  const int64_t rank = n.rank() + 1, axis = (n.Int("axis", -1) + rank) % rank;
  const Tensor indices = IsFloating(n.in(0).dtype()) ? Cast(n.in(0), DType::kI64) : n.in(0);
  Tensor hot = OneHot(FromStart(indices, size), size, n.in(2).dtype());
  const auto number = [&](double value) {
    return Constant(n.graph(), value, {.dtype = n.in(2).dtype()});
  };
  hot = Add(Mul(hot, number(values[1] - values[0])), number(values[0]));
  Ints perm(rank - 1);
  std::iota(perm.begin(), perm.end(), 0);
  perm.insert(perm.begin() + axis, rank - 1);
  return Tensors{Transpose(hot, perm)};
}

absl::StatusOr<Tensors> TranslateArgMax(const NodeView& n) {
  if (n.Int("select_last_index", 0) != 0) return Lacking("the last of equals");
  const int64_t axis = (n.Int("axis", 0) + n.rank()) % n.rank();
  Tensor index = Cast(ArgMax(n.in(0), axis), DType::kI64);
  return Tensors{n.Int("keepdims", 1) != 0 ? ExpandDims(index, axis) : index};
}

absl::StatusOr<Tensors> TranslateClip(const NodeView& n) {
  Tensor x = n.in(0);
  if (n.HasInput(1)) x = Maximum(x, n.in(1));
  if (n.HasInput(2)) x = Minimum(x, n.in(2));
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateLayerNorm(const NodeView& n) {
  const Shape shape = n.in(0).shape();  // a copy: appending moves the graph's
  const int64_t axis = (n.Int("axis", -1) + n.rank()) % n.rank();
  int64_t rows = 1, columns = 1;
  Ints kept;  // the statistics' shape
  for (int i = 0; i < n.rank(); ++i) {
    (i < axis ? rows : columns) *= shape[i];
    kept.push_back(i < axis ? shape[i] : 1);
  }
  const Tensors all = ApplyAll(
      "layer_norm",
      {Reshape(n.in(0), {rows, columns}), Reshape(n.in(1), {columns}), Reshape(n.in(2), {columns})},
      {{"epsilon", n.Float("epsilon", 1e-5)}});
  return Tensors{Reshape(all[0], shape), Reshape(all[1], Shape(kept)),
                 Reshape(all[2], Shape(kept))};
}

absl::StatusOr<Tensors> TranslateCrossEntropy(const NodeView& n) {
  if (n.HasInput(2) || n.Find("ignore_index") != nullptr) return Lacking("weighted classes");
  if (n.num_outputs() > 1) return Lacking("the second output of a cross entropy");
  // Classes are on axis 1.
  Ints perm(n.rank());
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + 1);
  perm.push_back(1);
  const Tensor loss = SoftmaxCrossEntropy(Transpose(n.in(0), perm), n.in(1));
  const std::string reduction = n.Text("reduction", "mean");
  return Tensors{reduction == "none" ? loss : reduction == "sum" ? Sum(loss) : Mean(loss)};
}

std::map<std::string, Translator> Translators() {
  const auto square = [](Tensor x) { return Square(x); };
  const auto root = [](Tensor x) { return Sqrt(x); };
  const auto log = [](Tensor x) { return Log(x); };
  return {
      {"Abs", Unary(Abs)},
      {"Neg", Unary(Neg)},
      {"Exp", Unary(Exp)},
      {"Log", Unary(Log)},
      {"Sqrt", Unary(Sqrt)},
      {"Tanh", Unary(Tanh)},
      {"Sigmoid", Unary(Sigmoid)},
      {"Relu", Unary(Relu)},
      {"Reciprocal", Unary(Reciprocal)},
      {"Sign", Unary(Sign)},
      {"Identity", Unary(Identity)},
      {"Not", Unary(LogicalNot)},
      {"Add", Binary(Add)},
      {"Sub", Binary(Sub)},
      {"Mul", Binary(Mul)},
      {"Div", Binary(Div)},
      {"Equal", Binary(Equal)},
      {"Less", Binary(Less)},
      {"LessOrEqual", Binary(LessEqual)},
      {"Greater", Binary(Greater)},
      {"GreaterOrEqual", Binary(GreaterEqual)},
      {"And", Binary(LogicalAnd)},
      {"Or", Binary(LogicalOr)},
      {"Xor", Binary(NotEqual)},
      {"Pow",
       [](const NodeView& n) { return Tensors{Pow(n.in(0), Cast(n.in(1), n.in(0).dtype()))}; }},
      {"Max", Folded(Maximum)},
      {"Min", Folded(Minimum)},
      {"Sum", Folded(Add)},
      {"Mean", Folded(Add, /*mean=*/true)},
      {"MatMul", [](const NodeView& n) { return Tensors{MatMul(n.in(0), n.in(1))}; }},
      {"Gemm", TranslateGemm},
      {"Softmax", AlongAxis([](Tensor x) { return Softmax(x); })},
      {"LogSoftmax", AlongAxis([](Tensor x) { return LogSoftmax(x); })},
      {"ReduceSum", Reduction(ReduceSum)},
      {"ReduceMean", Reduction(ReduceMean)},
      {"ReduceMax", Reduction(ReduceMax)},
      {"ReduceMin", Reduction(ReduceMin)},
      {"ReduceL1", Reduction(ReduceSum, [](Tensor x) { return Abs(x); })},
      {"ReduceL2", Reduction(ReduceSum, square, root)},
      {"ReduceSumSquare", Reduction(ReduceSum, square)},
      {"ReduceLogSum", Reduction(ReduceSum, nullptr, log)},
      {"ReduceLogSumExp", Reduction(
                              ReduceSum, [](Tensor x) { return Exp(x); }, log)},
      {"Transpose", TranslateTranspose},
      {"Concat", [](const NodeView& n) { return Tensors{Concat(n.inputs(), n.Int("axis", 0))}; }},
      {"Reshape", TranslateReshape},
      {"Flatten", TranslateFlatten},
      {"Squeeze", TranslateSqueeze},
      {"Unsqueeze", TranslateUnsqueeze},
      {"Expand", TranslateExpand},
      {"Slice", TranslateSlice},
      {"Split", TranslateSplit},
      {"Pad", TranslatePad},
      {"Gather", TranslateGather},
      {"Where", [](const NodeView& n) { return Tensors{Where(n.in(0), n.in(1), n.in(2))}; }},
      {"OneHot", TranslateOneHot},
      {"ArgMax", TranslateArgMax},
      {"Clip", TranslateClip},
      {"LayerNormalization", TranslateLayerNorm},
      {"SoftmaxCrossEntropyLoss", TranslateCrossEntropy},
      {"Cast",
       [](const NodeView& n) -> absl::StatusOr<Tensors> {
         ASSIGN_OR_RETURN(const DType dtype, DTypeOf(static_cast<int>(n.Int("to", 0))));
         return Tensors{Cast(n.in(0), dtype)};
       }},
  };
}

class Importer {
 public:
  Importer(const onnx::Graph& model, LogicalGraph& graph) : model_(model), graph_(graph) {}

  absl::Status Import(const std::vector<Array>& inputs) {
    for (const onnx::Tensor& initializer : model_.initializer()) {
      ASSIGN_OR_RETURN(Array array, ToArray(initializer));
      Feed(initializer.name(), std::move(array));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      Feed(model_.input(static_cast<int>(i)).name(), inputs[i]);
    }
    const std::map<std::string, Translator> translators = Translators();
    for (const onnx::Node& node : model_.node()) RETURN_IF_ERROR(Visit(node, translators));
    return graph_.status();
  }

  absl::StatusOr<TensorId> Output(int i) const {
    const auto found = values_.find(model_.output(i).name());
    if (found == values_.end()) return Lacking("an output that no operator makes");
    return found->second.id();
  }
  std::map<std::string, Array> TakeFeeds() { return std::move(feeds_); }

 private:
  void Feed(const std::string& name, Array array) {
    const std::string op = absl::StrCat("in", feeds_.size());
    const Tensor tensor = Input(graph_, op, {array.dtype(), array.shape()});
    values_[name] = tensor;
    known_.insert_or_assign(tensor.id(), array);
    feeds_.insert_or_assign(op, std::move(array));
  }

  absl::Status Visit(const onnx::Node& node, const std::map<std::string, Translator>& translators) {
    if (node.op_type() == "Constant") {
      if (node.attribute_size() != 1 || !node.attribute(0).has_t()) {
        return Lacking("a constant that is no tensor");
      }
      ASSIGN_OR_RETURN(Array array, ToArray(node.attribute(0).t()));
      Feed(node.output(0), std::move(array));
      return absl::OkStatus();
    }
    const auto translator = translators.find(node.op_type());
    if (translator == translators.end()) return Lacking(node.op_type());
    Tensors inputs;
    for (const std::string& input : node.input()) {
      const auto found = values_.find(input);
      if (!input.empty() && found == values_.end()) return Lacking("an input without a value");
      inputs.push_back(input.empty() ? Tensor() : found->second);
    }
    ASSIGN_OR_RETURN(const Tensors outputs,
                     translator->second(NodeView(node, std::move(inputs), known_)));
    RETURN_IF_ERROR(graph_.status());
    for (int i = 0; i < node.output_size() && i < static_cast<int>(outputs.size()); ++i) {
      values_[node.output(i)] = outputs[i];
    }
    return absl::OkStatus();
  }

  const onnx::Graph& model_;
  LogicalGraph& graph_;
  std::map<std::string, Tensor> values_;
  std::map<TensorId, Array> known_;
  std::map<std::string, Array> feeds_;
};

// input_0.pb, input_1.pb, ...
absl::StatusOr<std::vector<Array>> ReadArrays(const std::string& prefix) {
  std::vector<Array> arrays;
  for (int i = 0;; ++i) {
    const std::string path = absl::StrCat(prefix, i, ".pb");
    if (!std::filesystem::exists(path)) return arrays;
    ASSIGN_OR_RETURN(const onnx::Tensor tensor, ReadMessage<onnx::Tensor>(path));
    ASSIGN_OR_RETURN(Array array, ToArray(tensor));
    arrays.push_back(std::move(array));
  }
}

}  // namespace

absl::StatusOr<OnnxCase> ReadOnnxCase(const std::string& directory, const OpRegistry& ops) {
  ASSIGN_OR_RETURN(const onnx::Model model, ReadMessage<onnx::Model>(directory + "/model.onnx"));
  for (const auto* values : {&model.graph().input(), &model.graph().output()}) {
    for (const onnx::ValueInfo& value : *values) {
      if (!value.type().has_tensor_type()) return Lacking("sequences and optionals");
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Array> inputs,
                   ReadArrays(directory + "/test_data_set_0/input_"));
  ASSIGN_OR_RETURN(const std::vector<Array> outputs,
                   ReadArrays(directory + "/test_data_set_0/output_"));
  if (static_cast<int>(inputs.size()) > model.graph().input_size() ||
      static_cast<int>(outputs.size()) > model.graph().output_size()) {
    return absl::DataLossError("more files than the model has inputs or outputs");
  }
  OnnxCase result = {.graph = LogicalGraph(&ops)};
  Importer importer(model.graph(), result.graph);
  RETURN_IF_ERROR(importer.Import(inputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    ASSIGN_OR_RETURN(const TensorId output, importer.Output(static_cast<int>(i)));
    result.expected.emplace_back(output, outputs[i]);
  }
  result.feeds = importer.TakeFeeds();
  return result;
}

}  // namespace braid::conformance
