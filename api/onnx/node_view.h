// A node of an ONNX graph while it is translated: its attributes, its inputs as tensors of the job,
// and the numbers of inputs that are known when the model is imported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "api/onnx/value.h"
#include "graph/logical_graph.h"

namespace braid::onnx {

class AttributeProto;
class GraphProto;
class NodeProto;
class NodeView;
class TensorProto;

using Ints = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

// UNIMPLEMENTED: what Braid lacks, in few words. The importer puts file, node and operator in
// front.
absl::Status Lacking(const std::string& what);
// INVALID_ARGUMENT, likewise.
absl::Status Wrong(const std::string& what);

// Appends operators to n.graph() and returns the outputs, as many as it knows: the importer checks
// that the node has no more.
using TranslateFunction = std::function<absl::StatusOr<Tensors>(const NodeView& n)>;

// What surrounds a node, for those that hold graphs or sequences.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Imports a graph that an attribute holds; it sees the values that the node sees.
  virtual absl::StatusOr<std::vector<Value>> RunGraph(const GraphProto& graph,
                                                      std::vector<Value> inputs) = 0;
  // The model's, in whose folder tensors may have their data.
  virtual const std::string& file() const = 0;
  // The same one every time.
  virtual absl::StatusOr<std::shared_ptr<const KnownNumbers>> NumbersOf(
      const TensorProto& tensor) = 0;
  // Which inputs of the model a value is computed from, for messages: "; it depends on 'a': give
  // that as a value". "" if there are none.
  virtual std::string HowToKnow(const Value& value) const = 0;
  // As if there were a node with these inputs, that are tensors: computed now if all are known.
  virtual absl::StatusOr<std::vector<Value>> Compute(std::vector<Value> inputs,
                                                     const TranslateFunction& translate) = 0;
};

class NodeView {
 public:
  // Borrows all. `opset` is the version of the operator set that the model imports for the node's
  // domain.
  NodeView(const NodeProto& node, std::vector<Value> inputs, int64_t opset, Target& target,
           Surroundings& surroundings)
      : node_(node),
        inputs_(std::move(inputs)),
        opset_(opset),
        target_(target),
        surroundings_(surroundings) {}

  // The same node with other inputs, also as another operator's; attributes that it asks for count
  // as this one's.
  NodeView With(std::vector<Value> inputs) const { return With(std::move(inputs), opset_); }
  NodeView With(std::vector<Value> inputs, int64_t opset) const {
    return NodeView(*this, std::move(inputs), opset);
  }

  const std::string& type() const;
  int64_t opset() const { return opset_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const;
  LogicalGraph& graph() const { return target_.graph(); }

  // Optional inputs may be left out anywhere: ask first. The others are there, as many as the
  // translator was added with.
  bool HasInput(int i) const { return i < num_inputs() && inputs_[i].is_present(); }
  // HasOutput: somebody may want it.
  bool HasOutput(int i) const;
  // Invalid if it is not there. A value that is known gets an op in the graph by this; where its
  // numbers will do, use Known...
  Tensor in(int i) const;
  Tensors inputs() const;
  // A tensor that was made for the node, as an input of With; the graph's error if it was not.
  absl::StatusOr<Value> Made(Tensor tensor) const;
  // A tensor of numbers that the node's attributes hold: no weight, so never trained. `name` is
  // this table's among the node's.
  absl::StatusOr<Tensor> Table(const char* name, Array array) const;
  // HasInput(i) only; these need no op.
  TensorType type(int i) const { return inputs_[i].type(); }
  Shape shape(int i = 0) const { return type(i).shape; }
  DType dtype(int i = 0) const { return type(i).dtype; }
  int rank(int i = 0) const { return shape(i).rank(); }
  // For those that work with values: absent if it is not there.
  Value value(int i) const { return i < num_inputs() ? inputs_[i] : Value(); }
  // HasInput(i) only: INVALID_ARGUMENT if it is no sequence.
  absl::StatusOr<std::vector<Value>> Sequence(int i) const;
  Surroundings& surroundings() const { return surroundings_; }
  // The graph of an attribute; INVALID_ARGUMENT if there is none.
  absl::StatusOr<const GraphProto*> Graph(const char* name) const;

  // Attributes. Every one that the node has must be asked for by the translator, or the node is
  // refused: what nobody reads, nobody honours.
  bool Has(const char* name) const { return Find(name) != nullptr; }
  int64_t Int(const char* name, int64_t otherwise) const;
  bool Flag(const char* name, bool otherwise = false) const { return Int(name, otherwise) != 0; }
  double Float(const char* name, double otherwise) const;
  std::string Text(const char* name, const char* otherwise) const;
  std::optional<Ints> List(const char* name) const;
  std::optional<std::vector<double>> Floats(const char* name) const;
  std::optional<std::vector<std::string>> Texts(const char* name) const;
  const AttributeProto* Find(const char* name) const;
  // Has no meaning for Braid: hints, documentation.
  void Ignore(const char* name) const { Find(name); }
  // UNIMPLEMENTED if there are some that were not asked for.
  absl::Status CheckRead() const;

  // The numbers of an input that Braid has as an attribute: UNIMPLEMENTED if they are computed
  // while the job runs. HasInput(i) only.
  absl::StatusOr<std::vector<double>> KnownFloats(int i) const;
  absl::StatusOr<Ints> KnownInts(int i) const;
  // Of exactly one element.
  absl::StatusOr<double> KnownFloat(int i) const;
  absl::StatusOr<int64_t> KnownInt(int i) const;
  bool IsKnown(int i) const { return HasInput(i) && inputs_[i].numbers != nullptr; }
  // The attribute, else input i, else nothing: lists moved from one to the other over the opsets.
  absl::StatusOr<std::optional<Ints>> ListOrInput(const char* name, int i) const;

  // The attribute as an axis 0 .. rank - 1; negative ones count from the end.
  absl::StatusOr<int64_t> Axis(const char* name, int64_t otherwise, int rank) const;
  absl::StatusOr<int64_t> Axis(const char* name, int64_t otherwise) const {
    return Axis(name, otherwise, rank());
  }

 private:
  NodeView(const NodeView& other, std::vector<Value> inputs, int64_t opset)
      : node_(other.node_),
        inputs_(std::move(inputs)),
        opset_(opset),
        target_(other.target_),
        surroundings_(other.surroundings_),
        read_(other.read_) {}
  absl::StatusOr<std::shared_ptr<const Array>> Known(int i) const;

  const NodeProto& node_;
  const std::vector<Value> inputs_;
  const int64_t opset_;
  Target& target_;
  Surroundings& surroundings_;
  // Attributes that were asked for, also of the views that With made.
  const std::shared_ptr<std::set<std::string>> read_ = std::make_shared<std::set<std::string>>();
};

// 0 .. rank - 1 for -rank .. rank - 1, else INVALID_ARGUMENT.
absl::StatusOr<int64_t> NormalAxis(int64_t axis, int rank);
// Also that they are different.
absl::StatusOr<Ints> NormalAxes(Ints axes, int rank);
// The dims behind batch and channels.
Ints SpaceOf(const Shape& shape);

}  // namespace braid::onnx
