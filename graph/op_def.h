// An operator's definition: shapes, SBP signatures, gradient, cost and samples. One use of it in a
// graph is an Op; kernels live in runtime/kernels/<device>/<family>.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/logical_graph.h"
#include "graph/rule.h"
#include "graph/sbp.h"

namespace braid {

// On one dimension of a hierarchy: one Sbp per input and per output.
struct SbpSignature {
  std::vector<Sbp> inputs;
  std::vector<Sbp> outputs;
  std::string ToString() const;  // "(S(0), B)->(S(0))"
  friend bool operator==(const SbpSignature&, const SbpSignature&) = default;
};

// What shape and signature functions see of a use of the operator.
struct OpContext {
  const Attrs& attrs;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs = {};  // empty while they are inferred
};

// What a gradient function sees. It returns one Tensor per input of the op; an invalid Tensor means
// "no gradient flows". It appends ops with graph/functional.h only.
struct GradientContext {
  LogicalGraph& graph;
  const Op op;  // a copy: appending may move the graph's own
  std::vector<Tensor> inputs, outputs;
  std::vector<Tensor> output_gradients;  // invalid where no gradient arrives
};

// One case of the conformance suite. Values are drawn by the suite: floating inputs uniform in
// [low, high], integer inputs in [0, int_high).
struct OpSample {
  std::vector<TensorType> inputs;  // floating types stand for every floating type of the suite
  Attrs attrs = {};
  double low = -1, high = 1;
  int64_t int_high = 4;
  // False where the gradient is not the derivative of the op by itself: stop_gradient, and the
  // cross entropies (all of it goes to the logits, none through max and sum; as SoftmaxCrossEntropy
  // composes the ops, it is right).
  bool check_gradient = true;
};

class OpDef {
 public:
  explicit OpDef(std::string name) : name_(std::move(name)) {}

  // "ik,kj->ij": output shapes (dtype of input 0) and signatures follow (see rule.h).
  OpDef& Rule(std::string_view text);
  // P in exactly all the inputs of one listed set (others B) passes through
  // to P outputs: matmul says Linear({0}).Linear({1}), add says Linear({0, 1}).
  OpDef& Linear(std::vector<int> inputs);
  // P(max) and P(min) of input 0 pass through too (identity, transpose, reshape).
  OpDef& PassesPartialMaxMin();
  // Overrides the shapes of the rule: output types from inputs and attributes, or an error that
  // says both values (the caller adds op, name and line).
  OpDef& Infer(std::function<absl::StatusOr<std::vector<TensorType>>(const OpContext&)> fn);
  // Overrides the signatures of the rule; all-B is added by itself unless NoBroadcast. `parts` is
  // the number of parts that an axis must split into when a signature maps an axis onto another
  // (reshape): the whole hierarchy's product.
  OpDef& Signatures(std::function<std::vector<SbpSignature>(const OpContext&, int64_t parts)> fn);
  // Over micro-batches these signatures hold instead, unless the list is empty: the part of the
  // batch that an act sees counts as a batch of its own (batch statistics), so cutting it changes
  // the values. P there is what each act has by itself.
  OpDef& TimeSignatures(std::function<std::vector<SbpSignature>(const OpContext&)> fn);
  // All-B is legal only if Signatures says so.
  OpDef& NoBroadcast();
  OpDef& Gradient(std::function<std::vector<Tensor>(const GradientContext&)> fn);
  OpDef& NoGradient();  // says so on purpose (comparisons, argmax, updates)
  OpDef& Flops(std::function<double(const OpContext&)> fn);  // default: output elements
  OpDef& Sample(OpSample sample);
  // No sample needed: the value depends on the outside (readers, feeds, fetches, variables).
  OpDef& External();
  // Output `output` may use the bytes of input `input` if nobody else needs them.
  OpDef& Inplace(int input, int output);
  // The op overwrites these inputs, which must come from `variable` ops; it has no outputs.
  OpDef& Mutates(std::vector<int> inputs);
  // An optimizer's update: its inputs are the variable, its gradient, one state of the variable's
  // type per name, the learning rate and, if `takes_step`, the step. States start as zeros.
  OpDef& Update(std::vector<std::string> states, bool takes_step) {
    is_update_ = true;
    update_states_ = std::move(states);
    update_takes_step_ = takes_step;
    return *this;
  }
  // What an update takes as its last input: a scalar made of norms of whole tensors, by appending
  // ops. `inputs` are the update's others.
  using UpdateScalar = std::function<Tensor(const std::vector<Tensor>& inputs, const Attrs& attrs,
                                            SourceLocation where)>;
  OpDef& TakesScalar(UpdateScalar fn) {
    update_scalar_ = std::move(fn);
    return *this;
  }
  // These inputs may be bf16 or f16 while the outputs are f32, if attribute dtype says so: products
  // whose kernels add up in f32. --precision narrows them.
  OpDef& NarrowInputs(std::vector<int> inputs);
  // Its kernel may multiply in bf16 what is f32 outside, if attribute compute says so, which
  // --precision sets.
  OpDef& NarrowInside() {
    is_narrow_inside_ = true;
    return *this;
  }
  // Draws random numbers: keyed by name, step and logical index.
  OpDef& Random();
  // Each element of the output depends on the operands' elements at its place only.
  OpDef& Pointwise() {
    is_pointwise_ = true;
    return *this;
  }

  const std::string& name() const { return name_; }
  bool has_gradient() const { return static_cast<bool>(gradient_); }
  bool no_gradient() const { return no_gradient_; }
  bool external() const { return external_; }
  bool random() const { return random_; }
  bool is_update() const { return is_update_; }
  const std::vector<std::string>& update_states() const { return update_states_; }
  bool update_takes_step() const { return update_takes_step_; }
  const UpdateScalar& update_scalar() const { return update_scalar_; }  // may be empty
  const std::vector<int>& narrow_inputs() const { return narrow_inputs_; }
  bool is_narrow_inside() const { return is_narrow_inside_; }
  const std::vector<int>& mutates() const { return mutates_; }
  const std::vector<std::pair<int, int>>& inplace() const { return inplace_; }
  const std::vector<OpSample>& samples() const { return samples_; }
  bool is_pointwise() const { return is_pointwise_; }

  // Why the definition is not complete, or OK: OpRegistry asks.
  absl::Status Validate() const;

  // With a rule alone, floating inputs must have one dtype.
  absl::StatusOr<std::vector<TensorType>> InferTypes(const OpContext& context) const;
  // Every legal 1-d signature, all-B first, without repeats, each within the operands' ranks. A
  // signature may leave parts empty (axis shorter than the parts).
  std::vector<SbpSignature> LegalSignatures(const OpContext& context, int64_t parts) const;
  // The legal signatures over micro-batches: the same, unless the operator has TimeSignatures.
  std::vector<SbpSignature> LegalTimeSignatures(const OpContext& context, int64_t parts) const;
  // Whether an act's part of the batch is a batch of its own in this use of the operator.
  bool IsPerMicroBatch(const OpContext& context) const;
  std::vector<Tensor> BuildGradient(const GradientContext& context) const;
  double CountFlops(const OpContext& context) const;
  // How many outputs a use has if its types cannot be inferred: the rule's, else the first
  // sample's, else 1.
  int NominalOutputs() const;

 private:
  std::string name_;
  std::optional<braid::Rule> rule_;
  absl::Status rule_status_;  // why the rule's text is wrong; Validate returns it
  std::vector<std::vector<int>> linear_;
  bool passes_partial_max_min_ = false;
  std::function<absl::StatusOr<std::vector<TensorType>>(const OpContext&)> infer_;
  std::function<std::vector<SbpSignature>(const OpContext&, int64_t)> signatures_;
  std::function<std::vector<SbpSignature>(const OpContext&)> time_signatures_;
  std::function<std::vector<Tensor>(const GradientContext&)> gradient_;
  std::function<double(const OpContext&)> flops_;
  std::vector<OpSample> samples_;
  std::vector<std::pair<int, int>> inplace_;
  std::vector<int> narrow_inputs_;
  std::vector<int> mutates_;
  std::vector<std::string> update_states_;
  UpdateScalar update_scalar_;
  bool is_update_ = false, update_takes_step_ = false;
  bool no_gradient_ = false, no_broadcast_ = false, external_ = false, random_ = false;
  bool is_pointwise_ = false, is_narrow_inside_ = false;
};

}  // namespace braid
