// A value of an ONNX graph while it is imported, and where the job's tensors for such values are
// made.
#pragma once

#include <braid/onnx.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "graph/logical_graph.h"
#include "runtime/array.h"

namespace braid::onnx {

using Words = std::shared_ptr<const std::vector<std::string>>;

// Absent; a tensor, of which we know what computes it, its numbers, or both; a sequence, whose
// length is known always; or an optional that holds nothing (one that holds something is that).
struct Value {
  std::string name;  // in the file
  Tensor tensor;
  std::shared_ptr<const KnownNumbers> numbers;
  // The file's: a variable when it is needed in the graph, though its numbers are known.
  bool is_weight = false;
  bool is_trained = false;  // is_weight only
  Words words;              // it is text: its numbers are places in these
  std::shared_ptr<const std::vector<Value>> sequence;
  bool is_empty_optional = false;

  bool is_tensor() const { return tensor.valid() || numbers != nullptr; }
  bool is_present() const { return is_tensor() || sequence != nullptr || is_empty_optional; }
  // A tensor of which there is nothing but its numbers: what is computed from it can be computed at
  // once.
  bool is_constant() const { return numbers != nullptr && !is_weight && !tensor.valid(); }
  // is_tensor() only.
  TensorType type() const { return tensor.valid() ? tensor.type() : numbers->type(); }
};

Value ConstantOf(Array array);
// Whether all elements are the same number.
bool IsUniform(const Array& array);
Value SequenceOf(std::vector<Value> values);

// The graph that is appended to, and the tensors in it of values that are known.
class Target {
 public:
  // Known values become literals, constants and variables.
  Target(LogicalGraph& graph, const ApplyOptions& options) : graph_(graph), options_(&options) {}
  // Known values become `input` ops, whose numbers feeds() has.
  explicit Target(LogicalGraph& graph) : graph_(graph) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  LogicalGraph& graph() { return graph_; }
  // Of a value that is a tensor. The same one every time.
  Tensor TensorOf(const Value& value);
  // INVALID_ARGUMENT if TensorOf cannot make it, as its name is another op's.
  absl::Status Check(const Value& value);
  // What is appended until Leave is named under `scope`; variables are not.
  void Enter(std::string_view scope);
  void Leave();

  // By their full names, with their first values.
  const NumbersByName& variables() const { return variables_; }
  const std::map<TensorId, std::shared_ptr<const KnownNumbers>>& feeds() const { return feeds_; }

 private:
  Tensor MakeTensor(const Value& value);
  Tensor MakeVariable(const Value& value);
  absl::StatusOr<bool> IsVariable(const Value& value) const;

  LogicalGraph& graph_;
  const ApplyOptions* const options_ = nullptr;  // nullptr: fed
  std::vector<std::string> scopes_;
  std::map<const KnownNumbers*, Value>
      made_;  // each with these, so that their address stays their own
  NumbersByName variables_;
  std::map<TensorId, std::shared_ptr<const KnownNumbers>> feeds_;
};

}  // namespace braid::onnx
