// Walks the graphs of an ONNX file and translates their nodes, one after another, as the file
// orders them. What is known already is computed at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/onnx/translators.h"
#include "api/onnx/value.h"
#include "runtime/kernels/kernel.h"

namespace braid::onnx {

class AttributeProto;
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;

// "ai.onnx" is the long name of "".
std::string DomainOf(const std::string& domain);
// "Conv"; behind the domain and a dot if that is not ONNX's own.
std::string OperatorOf(const NodeProto& node);

class Importer {
 public:
  // Borrows model and target. `file` is where the model is from.
  Importer(const ModelProto& model, std::string file, Target& target);
  ~Importer();

  // Imports the model's graph, for which `given` has inputs and initializers by name. Returns its
  // outputs. Errors say node and operator.
  absl::StatusOr<std::vector<Value>> Run(std::map<std::string, Value> given);

 private:
  // The names that the nodes of a graph see.
  struct Scope {
    const Scope* outer = nullptr;  // of a graph in a node: the node's
    std::map<std::string, Value> values = {};
    // In a function: what it was called with, and what it imports.
    const FunctionProto* function = nullptr;
    std::map<std::string, const AttributeProto*> attributes = {};
    std::string prefix = {};  // of names
    std::string title = {};   // "the graph 'body'", for messages
    int depth = 0;
  };
  class NodeSurroundings;

  template <class Nodes>
  absl::Status VisitAll(const Nodes& nodes, Scope& scope);
  absl::Status Visit(const NodeProto& node, Scope& scope);
  absl::StatusOr<std::vector<Value>> Inputs(const NodeProto& node, const Scope& scope) const;
  absl::StatusOr<Value> Find(const std::string& name, const Scope& scope) const;
  absl::StatusOr<int64_t> OpsetOf(const std::string& domain, const Scope& scope) const;
  // `node` with the function's attributes in the places that name them.
  const NodeProto& Instantiate(const NodeProto& node, const Scope& scope);

  absl::StatusOr<std::vector<Value>> Translate(const NodeProto& node, std::vector<Value> inputs,
                                               Scope& scope);
  absl::StatusOr<std::vector<Value>> Call(const FunctionProto& function, const NodeProto& node,
                                          std::vector<Value> inputs, const Scope& scope);
  absl::StatusOr<std::vector<Value>> RunGraph(const GraphProto& graph, std::vector<Value> inputs,
                                              const Scope& outer);
  // One node's worth of operators: in the job, or now if the inputs are constants, or both.
  absl::StatusOr<std::vector<Value>> Compute(const NodeProto& node, std::vector<Value> inputs,
                                             int64_t opset, const TranslateFunction& translate,
                                             Surroundings& surroundings);
  absl::StatusOr<std::vector<Value>> ComputeNow(const NodeProto& node,
                                                const std::vector<Value>& inputs, int64_t opset,
                                                const TranslateFunction& translate,
                                                Surroundings& surroundings);
  absl::StatusOr<std::shared_ptr<const KnownNumbers>> NumbersOf(const TensorProto& tensor);
  // The model's inputs that a tensor is computed from, in the order of their names.
  std::set<std::string> InputsBehind(Tensor tensor) const;
  // INVALID_ARGUMENT if the graph has a value of this name. `what`, "it makes", for instance, says
  // what it would be, and `where` the graph is, for the message.
  static absl::Status CheckNew(const std::string& what, const std::string& name, const Scope& scope,
                               const char* where = "");
  // What the graph has before its nodes run. Such names may hide those of graphs around it, as
  // names that its nodes make may not.
  absl::Status Begin(const GraphProto& graph, std::vector<Value> inputs, Scope& scope);

  const ModelProto& model_;
  const std::string file_;
  Target& target_;
  std::map<TensorId, std::string> inputs_;  // of the model: those that are tensors
  const Translators translators_;
  const KernelRegistry kernels_;
  std::map<const TensorProto*, std::shared_ptr<const KnownNumbers>> numbers_;
  std::vector<std::unique_ptr<NodeProto>> instances_;  // numbers_ points into them
  int64_t visits_ = 0;
};

}  // namespace braid::onnx
