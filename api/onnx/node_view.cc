#include "api/onnx/node_view.h"

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "runtime/base/status.h"

namespace braid::onnx {

absl::Status Lacking(const std::string& what) { return absl::UnimplementedError(what); }
absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

const std::string& NodeView::type() const { return node_.op_type(); }

int NodeView::num_outputs() const { return node_.output_size(); }

bool NodeView::HasOutput(int i) const {
  return i < node_.output_size() && !node_.output(i).empty();
}

Tensor NodeView::in(int i) const {
  const bool is_tensor = i < num_inputs() && inputs_[i].is_tensor();
  return is_tensor ? target_.TensorOf(inputs_[i]) : Tensor();
}

absl::StatusOr<Value> NodeView::Made(Tensor tensor) const {
  if (tensor.valid()) return Value{.tensor = std::move(tensor)};
  const absl::Status& status = graph().status();
  return status.ok() ? absl::InternalError("a tensor that was not made") : status;
}

absl::StatusOr<std::vector<Value>> NodeView::Sequence(int i) const {
  if (inputs_[i].sequence != nullptr) return *inputs_[i].sequence;
  return Wrong(absl::StrCat("input ", i, " is no sequence"));
}

absl::StatusOr<const GraphProto*> NodeView::Graph(const char* name) const {
  const AttributeProto* attribute = Find(name);
  if (attribute != nullptr && attribute->has_g()) return &attribute->g();
  return Wrong(absl::StrCat("there is no graph '", name, "'"));
}

Tensors NodeView::inputs() const {
  Tensors tensors;
  for (int i = 0; i < num_inputs(); ++i) tensors.push_back(in(i));
  return tensors;
}

absl::StatusOr<Tensor> NodeView::Table(const char* name, Array array) const {
  Value value = ConstantOf(std::move(array));
  value.name = absl::StrCat(num_outputs() > 0 ? node_.output(0) : type(), ".", name);
  BRAID_RETURN_IF_ERROR(target_.Check(value));
  return target_.TensorOf(value);
}

const AttributeProto* NodeView::Find(const char* name) const {
  for (const AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) {
      read_->insert(name);
      return &attribute;
    }
  }
  return nullptr;
}

int64_t NodeView::Int(const char* name, int64_t otherwise) const {
  const AttributeProto* attribute = Find(name);
  return attribute != nullptr ? attribute->i() : otherwise;
}

double NodeView::Float(const char* name, double otherwise) const {
  const AttributeProto* attribute = Find(name);
  return attribute != nullptr ? attribute->f() : otherwise;
}

std::string NodeView::Text(const char* name, const char* otherwise) const {
  const AttributeProto* attribute = Find(name);
  return attribute != nullptr ? attribute->s() : otherwise;
}

std::optional<Ints> NodeView::List(const char* name) const {
  const AttributeProto* attribute = Find(name);
  if (attribute == nullptr) return std::nullopt;
  return Ints(attribute->ints().begin(), attribute->ints().end());
}

std::optional<std::vector<double>> NodeView::Floats(const char* name) const {
  const AttributeProto* attribute = Find(name);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<double>(attribute->floats().begin(), attribute->floats().end());
}

std::optional<std::vector<std::string>> NodeView::Texts(const char* name) const {
  const AttributeProto* attribute = Find(name);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<std::string>(attribute->strings().begin(), attribute->strings().end());
}

absl::Status NodeView::CheckRead() const {
  for (const AttributeProto& attribute : node_.attribute()) {
    if (!read_->contains(attribute.name())) return Lacking("attribute " + attribute.name());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Array>> NodeView::Known(int i) const {
  if (!HasInput(i)) return Wrong(absl::StrCat("input ", i, " is missing"));
  if (inputs_[i].numbers == nullptr) {
    return Lacking(absl::StrCat("input ", i, ", '", inputs_[i].name,
                                "', must be known when the model is imported, and is computed",
                                surroundings_.HowToKnow(inputs_[i])));
  }
  return inputs_[i].numbers->Read();
}

absl::StatusOr<std::vector<double>> NodeView::KnownFloats(int i) const {
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, Known(i));
  const Array wide = array->As(DType::kF64);
  return std::vector<double>(wide.data<double>().begin(), wide.data<double>().end());
}

absl::StatusOr<Ints> NodeView::KnownInts(int i) const {
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, Known(i));
  const Array wide = array->As(DType::kI64);
  return Ints(wide.data<int64_t>().begin(), wide.data<int64_t>().end());
}

absl::StatusOr<double> NodeView::KnownFloat(int i) const {
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> values, KnownFloats(i));
  if (values.size() == 1) return values[0];
  return Wrong(absl::StrCat("input ", i, " has ", values.size(), " elements; one is needed"));
}

absl::StatusOr<int64_t> NodeView::KnownInt(int i) const {
  BRAID_ASSIGN_OR_RETURN(const Ints values, KnownInts(i));
  if (values.size() == 1) return values[0];
  return Wrong(absl::StrCat("input ", i, " has ", values.size(), " elements; one is needed"));
}

absl::StatusOr<std::optional<Ints>> NodeView::ListOrInput(const char* name, int i) const {
  if (Has(name) || !HasInput(i)) return List(name);
  BRAID_ASSIGN_OR_RETURN(Ints values, KnownInts(i));
  return values;
}

absl::StatusOr<int64_t> NodeView::Axis(const char* name, int64_t otherwise, int rank) const {
  return NormalAxis(Int(name, otherwise), rank);
}

absl::StatusOr<int64_t> NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return Wrong(absl::StrCat("axis is ", axis, "; of ", rank, " axes, -", rank, " .. ", rank - 1,
                              " is needed"));
  }
  return axis < 0 ? axis + rank : axis;
}

absl::StatusOr<Ints> NormalAxes(Ints axes, int rank) {
  std::set<int64_t> seen;
  for (int64_t& axis : axes) {
    BRAID_ASSIGN_OR_RETURN(axis, NormalAxis(axis, rank));
    if (!seen.insert(axis).second) {
      return Wrong(absl::StrCat("axis ", axis, " is there twice"));
    }
  }
  return axes;
}

Ints SpaceOf(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

}  // namespace braid::onnx
