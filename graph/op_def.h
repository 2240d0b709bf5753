// An operator's definition: sharding rule, types, gradient, cost and samples. One use of it in a
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
#include "graph/op_parts.h"
#include "graph/rule.h"
#include "graph/sbp.h"

namespace braid {

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
  // False where the gradient is not the derivative of the op by itself: stop_gradient, the cross
  // entropies (all of it goes to the logits, none through max and sum; as SoftmaxCrossEntropy
  // composes the ops, it is right), and what leads into mirrored values or out of them (its
  // opposite must stand beside it).
  bool check_gradient = true;
};

// An operator's place in a step, if passes must know it whatever the arithmetic.
enum class OpRole : uint8_t {
  kNone,
  kVariable,         // a value that lasts from step to step
  kInput,            // the host feeds it; it enters the cluster at the master
  kFetch,            // goes to the host, at the master
  kReader,           // one batch of records a step
  kStep,             // the number of the step
  kGradientRequest,  // stands for a gradient until there is one
  kReducedGradient,  // says what a variable's mirrored gradients come to
  kAfter,            // its first input, but not before the second is there
  kDropout,          // drops elements in training; else it makes what `identity` makes
  kIfTraining,       // its first input in jobs that train, its second in others
  kAssign,           // overwrites its first input by its second
};

class OpDef {
 public:
  explicit OpDef(std::string name) : name_(std::move(name)) {}

  // "ik,kj->ij" (rule.h): output shapes and signatures follow, in each use of the operator.
  OpDef& Rule(std::string_view text);
  // The text where it depends on attributes or the number of inputs.
  OpDef& Rule(std::function<std::string(const OpContext&)> text);
  // Where no text says it, as where axes are a list: what the text would stand for, without shapes.
  OpDef& Rule(std::function<FactorRule(const OpContext&)> factors);
  // Which dtypes a rule's inputs have, a letter each: f floating, i is i32 or i64, b bool, x any.
  // All of f are alike, and so are all of x. Without it, all floating inputs are alike.
  OpDef& Takes(std::string_view dtypes);
  // The dtype of a rule's outputs. Without it, it is that of the first f or x, else of input 0.
  OpDef& Gives(std::function<absl::StatusOr<DType>(const OpContext&)> dtype);
  OpDef& Gives(DType dtype);
  // What a rule cannot say of inputs and attributes: an error that says both values, or OK.
  OpDef& Check(std::function<absl::Status(const OpContext&)> fn);
  // P in exactly all the inputs of one listed set (others B) passes through to P outputs, where
  // `when` holds: matmul says Linear({0}).Linear({1}), add says Linear({0, 1}). {}: all inputs.
  using When = std::function<bool(const OpContext&)>;
  OpDef& Linear(std::vector<int> inputs, When when = {});
  // P(max) and P(min) of input 0 pass through too (identity, transpose, reshape).
  OpDef& PassesPartialMaxMin();
  // The same of any partial.
  OpDef& Passes(Sbp partial, std::vector<int> inputs);
  // The input is added to the result: it is P wherever an output is (the bias of a convolution).
  OpDef& Addend(int input);
  // Instead of the shapes of the rule: output types from inputs and attributes, or an error that
  // says both values (the caller adds op, name and line).
  OpDef& Infer(std::function<absl::StatusOr<std::vector<TensorType>>(const OpContext&)> fn);
  // Instead of a rule's signatures, where no factors say them. All-B is added by itself unless
  // NoBroadcast. `parts` is the number of parts that an axis must split into when a signature maps
  // an axis onto another: the whole hierarchy's product, times the micro-batches if these split it.
  OpDef& Signatures(std::function<std::vector<SbpSignature>(const OpContext&, int64_t parts)> fn);
  // Over micro-batches these signatures hold instead, unless the list is empty: the part of the
  // batch that an act sees counts as a batch of its own (batch statistics), so cutting it changes
  // the values. P there is what each act has by itself.
  OpDef& MicroBatchSignatures(std::function<std::vector<SbpSignature>(const OpContext&)> fn);
  // All-B is legal only if Signatures says so.
  OpDef& NoBroadcast();
  OpDef& Gradient(std::function<std::vector<Tensor>(const GradientContext&)> fn);
  OpDef& NoGradient();  // says so on purpose (comparisons, argmax, updates)
  OpDef& Flops(std::function<double(const OpContext&)> fn);  // default: output elements
  OpDef& Sample(OpSample sample);
  // No sample needed: the value depends on the outside (readers, feeds, fetches, variables).
  OpDef& External();
  // Only what stands in the list of roles has one.
  OpDef& Role(OpRole role) {
    role_ = role;
    return *this;
  }
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
  // An update of which `op` does the rows of a table alone: its inputs are the variable, the
  // indices of rows, what is added to a gradient of zeros at these, and then as here. `may` says of
  // the attributes that a gradient of 0 changes nothing.
  OpDef& RowForm(std::string op, std::function<bool(const Attrs&)> may) {
    row_form_ = std::move(op);
    has_row_form_ = std::move(may);
    return *this;
  }
  // The output is zeros, to which the rows of input 1 are added at the indices of input 0, on the
  // axis that attribute axis says.
  OpDef& AddsRows() {
    adds_rows_ = true;
    return *this;
  }
  // Its output, assigned to a variable, is what `op` writes straight into that variable, its only
  // input, by the same attributes.
  OpDef& ReadsInto(std::string op) {
    reads_into_ = std::move(op);
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
  // --precision sets; or these inputs, and what is made of them, are narrow themselves. No inputs:
  // not in this use of the operator.
  OpDef& NarrowInside(std::function<std::vector<int>(const OpContext&)> inputs) {
    narrow_inside_ = std::move(inputs);
    return *this;
  }
  // These inputs, and the outputs that are like them, may be bf16 or f16 while all others are f32,
  // in which its kernels add up: norms, pooling, cross entropies. --precision keeps them so between
  // products.
  OpDef& KeepsNarrow(std::vector<int> inputs);
  // Its first output may be bf16 or f16 of f32 inputs, if attribute dtype says so: --precision sets
  // it where only products read that.
  OpDef& MakesNarrow() {
    makes_narrow_ = true;
    return *this;
  }
  // Leads into mirrored values (to M) or out of them (from M), on the dimensions that its
  // attributes name; its other signatures hold on the others. Each device keeps its bytes, which
  // only mean something else: nothing is done.
  OpDef& Mirrors(Sbp from, Sbp to) {
    mirrors_ = SbpSignature{{from}, {to}};
    return *this;
  }
  // Draws random numbers: keyed by name, step and logical index; of mirrored values also by device.
  OpDef& Random();
  // How its kernels can work in parts, of the operands that one device holds; else as a whole.
  OpDef& Parts(std::function<OpParts(const OpContext&)> fn) {
    parts_ = std::move(fn);
    return *this;
  }
  // Each element of the output depends on the operands' elements at its place only: BroadcastParts.
  OpDef& Pointwise() {
    is_pointwise_ = true;
    return Parts(BroadcastParts);
  }

  const std::string& name() const { return name_; }
  bool has_gradient() const { return static_cast<bool>(gradient_); }
  bool no_gradient() const { return no_gradient_; }
  bool external() const { return external_; }
  bool random() const { return random_; }
  OpRole role() const { return role_; }
  bool is_update() const { return is_update_; }
  const std::vector<std::string>& update_states() const { return update_states_; }
  bool update_takes_step() const { return update_takes_step_; }
  const UpdateScalar& update_scalar() const { return update_scalar_; }  // may be empty
  // "": these attributes have none.
  std::string row_form(const Attrs& attrs) const {
    return has_row_form_ && has_row_form_(attrs) ? row_form_ : std::string();
  }
  bool adds_rows() const { return adds_rows_; }
  const std::string& reads_into() const { return reads_into_; }  // may be empty
  const std::vector<int>& narrow_inputs() const { return narrow_inputs_; }
  bool has_narrow_inside() const { return static_cast<bool>(narrow_inside_); }
  std::vector<int> narrow_inside(const OpContext& context) const {
    return narrow_inside_ ? narrow_inside_(context) : std::vector<int>();
  }
  const std::vector<int>& keeps_narrow() const { return keeps_narrow_; }
  bool makes_narrow() const { return makes_narrow_; }
  const std::vector<int>& mutates() const { return mutates_; }
  const std::vector<std::pair<int, int>>& inplace() const { return inplace_; }
  const std::vector<OpSample>& samples() const { return samples_; }
  const std::optional<SbpSignature>& mirrors() const { return mirrors_; }
  // On a dimension over which an operand is mirrored: that of Mirrors, else M for all operands.
  SbpSignature MirroredSignature(const OpContext& context) const;
  bool is_pointwise() const { return is_pointwise_; }
  // The output has input 0's elements, elsewhere or repeated, and nothing else.
  bool moves_elements() const { return moves_elements_; }
  OpParts PartsOf(const OpContext& context) const { return parts_ ? parts_(context) : OpParts{}; }

  // Why the definition is not complete, or OK: OpRegistry asks.
  absl::Status Validate() const;

  absl::StatusOr<std::vector<TensorType>> InferTypes(const OpContext& context) const;
  // Every legal 1-d signature, all-B first, without repeats, each within the operands' ranks. A
  // signature may leave parts empty (axis shorter than the parts).
  std::vector<SbpSignature> LegalSignatures(const OpContext& context, int64_t parts) const;
  // The legal signatures over micro-batches: the same, unless the operator has
  // MicroBatchSignatures.
  std::vector<SbpSignature> LegalMicroBatchSignatures(const OpContext& context,
                                                      int64_t parts) const;
  // Whether an act's part of the batch is a batch of its own in this use of the operator.
  bool IsPerMicroBatch(const OpContext& context) const;
  std::vector<Tensor> BuildGradient(const GradientContext& context) const;
  double CountFlops(const OpContext& context) const;
  // How many outputs a use has if its types cannot be inferred: the rule's, else the first
  // sample's, else 1.
  int NominalOutputs() const;

 private:
  absl::StatusOr<std::vector<TensorType>> TypesOfRule(const OpContext& context) const;
  // The rule of one use, which `parsed` holds if the text is the use's own.
  absl::StatusOr<const braid::Rule*> RuleOf(const OpContext& context,
                                            std::optional<braid::Rule>& parsed) const;
  absl::StatusOr<FactorRule> FactorsOf(const OpContext& context) const;

  std::string name_;
  std::optional<braid::Rule> rule_;
  absl::Status rule_status_;  // why the rule's text is wrong; Validate returns it
  std::function<std::string(const OpContext&)> rule_text_;
  std::function<FactorRule(const OpContext&)> rule_factors_;
  std::string takes_;
  std::function<absl::StatusOr<DType>(const OpContext&)> gives_;
  std::function<absl::Status(const OpContext&)> check_;
  std::vector<std::pair<Passage, When>> passages_;
  std::vector<int> addends_;
  std::function<absl::StatusOr<std::vector<TensorType>>(const OpContext&)> infer_;
  std::function<std::vector<SbpSignature>(const OpContext&, int64_t)> signatures_;
  std::function<std::vector<SbpSignature>(const OpContext&)> micro_batch_signatures_;
  std::function<std::vector<Tensor>(const GradientContext&)> gradient_;
  std::function<double(const OpContext&)> flops_;
  std::function<OpParts(const OpContext&)> parts_;
  std::vector<OpSample> samples_;
  std::vector<std::pair<int, int>> inplace_;
  std::vector<int> narrow_inputs_, keeps_narrow_;
  bool makes_narrow_ = false;
  std::function<std::vector<int>(const OpContext&)> narrow_inside_;
  std::vector<int> mutates_;
  std::vector<std::string> update_states_;
  UpdateScalar update_scalar_;
  std::string row_form_, reads_into_;
  std::function<bool(const Attrs&)> has_row_form_;
  std::optional<SbpSignature> mirrors_;
  OpRole role_ = OpRole::kNone;
  bool is_update_ = false, update_takes_step_ = false;
  bool no_gradient_ = false, no_broadcast_ = false, external_ = false, random_ = false;
  bool is_pointwise_ = false, moves_elements_ = false, adds_rows_ = false;
};

}  // namespace braid
