// The job as written: ops on whole tensors, in the order in which they were recorded. No threads,
// no devices beyond the placements that the user named.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/dtype.h"
#include "graph/placement.h"
#include "graph/sbp.h"
#include "graph/shape.h"
#include "graph/source_location.h"

namespace braid {

class LogicalGraph;
class OpDef;
class OpRegistry;
class TextReader;

using OpId = int32_t;
using TensorId = int32_t;
constexpr int32_t kNone = -1;

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  std::string ToString() const;  // "f32[64, 784]"
  static absl::StatusOr<TensorType> Read(TextReader& reader);
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Where a graph is; null when it is gone.
struct GraphPlace {
  LogicalGraph* graph = nullptr;
};

// Of a tensor that is mirrored: each device has a value of its own, of the tensor's type. Whatever
// is computed from it is mirrored, too, until an operator makes one value of all
// (graph/functions/mirrored.h).
struct Mirroring {
  static constexpr uint64_t kAllDims = ~uint64_t{0};
  uint64_t dims = kAllDims;  // bit d: over dimension d of the placement
  int64_t parts = 1;         // the devices over these dimensions: how many values there are

  bool IsOver(int dim) const { return (dims >> dim & 1) != 0; }
  // As operators carry it in their attributes.
  void Set(Attrs& attrs) const;
  static std::optional<Mirroring> Of(const Attrs& attrs);
  static void Clear(Attrs& attrs);
  std::string ToString() const;  // "4 values, over dimensions 0, 2"
  friend bool operator==(const Mirroring&, const Mirroring&) = default;
};

// A value of the graph, as users and gradients hold it: a borrowed graph and an id. A Tensor that
// came from an error is invalid, as is one whose graph is gone; ops on it do nothing.
class Tensor {
 public:
  Tensor() = default;
  Tensor(LogicalGraph* graph, TensorId id);  // the graph may be null: then as default-made
  bool valid() const { return id_ != kNone && graph() != nullptr; }
  // Default-made: it stands for an operand that is not given.
  bool is_none() const { return place_ == nullptr; }
  // Set also when invalid; null if it is none, and if its graph is gone.
  LogicalGraph* graph() const { return place_ == nullptr ? nullptr : place_->graph; }
  TensorId id() const { return id_; }
  // By value: the graph moves its own when an op is appended. Of an invalid Tensor: f32 [].
  TensorType type() const;
  Shape shape() const { return type().shape; }

  DType dtype() const { return type().dtype; }
  // None: it has one value, as seen from all devices.
  std::optional<Mirroring> mirroring() const;
  friend bool operator==(const Tensor&, const Tensor&) = default;

 private:
  std::shared_ptr<const GraphPlace> place_;
  TensorId id_ = kNone;
};

// One use of an operator.
struct Op {
  OpId id = kNone;
  std::string name;  // unique in the graph, stable: the key of random numbers and of variables
  std::string type;  // the OpDef's name
  Attrs attrs;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  SourceLocation location;

  // What the user asked for or a pass decided.
  std::optional<Placement> placement;       // job.On; set on every op after infer_placement
  std::vector<std::optional<NdSbp>> hints;  // per output; hard constraints
  OpId forward = kNone;                     // of a gradient's op: the op it belongs to
  int block = 0;                            // of job.Recompute that it is in; 0: none
  bool is_again = false;                    // computes once more what `forward` computed
  int acts_per_step = 1;                    // micro_batch sets it
  // Layouts over micro-batches, if it acts several times a step: S, B, P.
  std::vector<Sbp> input_micro_batch_sbp, output_micro_batch_sbp;
  std::vector<NdSbp> input_sbp, output_sbp;  // per operand, chosen by infer_sbp
};

struct TensorInfo {
  TensorType type;
  OpId producer = kNone;
  int output = 0;
  std::optional<Mirroring> mirroring = std::nullopt;
};

// Variables that are trained otherwise than the rest of a Minimize.
struct VariableGroup {
  // What their names match, in which * stands for any characters and ? for one: "*.bias". Of the
  // groups that a name matches the first counts.
  std::string names;
  double rate = 1;                                    // times the learning rate
  std::optional<double> weight_decay = std::nullopt;  // instead of the optimizer's
  bool is_frozen = false;                             // they keep their values
};

// What the optimizer pass must build: recorded by Minimize, taken out by the passes.
struct MinimizeRequest {
  TensorId loss = kNone;
  // OpDef name of the update, e.g. "adam_update", or "adafactor"; "": there are gradients, and
  // nothing is updated.
  std::string optimizer;
  Attrs attrs;                     // its attributes
  TensorId learning_rate = kNone;  // a scalar tensor (schedules are ops)
  TensorId loss_scale = kNone;     // f32 []: a factor of the loss while gradients are computed
  std::vector<OpId> variables;     // empty: every trainable variable that the loss reaches
  double clip_global_norm = 0;     // 0: none
  int micro_batches = 1;
  std::vector<VariableGroup> groups;
  // Of the buckets in which gradients of several devices are summed; none: the compiler's sizes.
  std::optional<int64_t> first_bucket_bytes, bucket_bytes;
  SourceLocation location;

  // The group of a variable, or null.
  const VariableGroup* GroupOf(const std::string& variable) const;
};

class LogicalGraph {
 public:
  // The registry is borrowed and must outlive the graph.
  explicit LogicalGraph(const OpRegistry* registry) : registry_(registry) {}
  LogicalGraph(const LogicalGraph&) = default;
  LogicalGraph& operator=(const LogicalGraph&) = default;

  // Everything that Append is told beside the inputs.
  struct AppendOptions {
    std::string name = {};  // "" = the type; made unique under the current scope
    Attrs attrs = {};
    SourceLocation location = {};
    std::vector<std::optional<NdSbp>> hints = {};
    std::optional<Placement> placement =
        std::nullopt;  // none: the current one (see PlacementScope)
  };
  // Appends an op and returns its outputs, after checking types through its OpDef. If an input is
  // mirrored, those that are not are mirrored before. On error, or if
  // an input is invalid, returns as many invalid Tensors as the op has outputs (1 if unknown) and
  // keeps the first error in status() with op, both values and the user's line.
  std::vector<Tensor> Append(std::string_view type, std::span<const Tensor> inputs,
                             AppendOptions options);
  Tensor Append1(std::string_view type, std::span<const Tensor> inputs, AppendOptions options);

  // Records an error found before Append; later ones are dropped. Returns an invalid Tensor.
  Tensor Fail(absl::Status status);
  const absl::Status& status() const { return status_; }

  // Names nest: Scope "h.0" then "attn" gives "h.0.attn.<name>".
  void PushScope(std::string_view name);
  void PopScope();
  std::string UniqueName(std::string_view base) const;
  std::string ScopedName(std::string_view base) const;  // under the current scope, maybe taken
  // Placement and forward op that Append gives to new ops.
  void PushPlacement(std::optional<Placement> placement);
  void PopPlacement();
  std::optional<Placement> current_placement() const {
    return placements_.empty() ? std::nullopt : placements_.back();
  }
  void set_current_forward(OpId op) { current_forward_ = op; }
  // Append puts new ops into a block of their own until the matching Pop. A block inside another is
  // part of that one.
  void PushBlock();
  void PopBlock();
  // Random values that are made of nothing are mirrored so until the matching Pop.
  void PushMirroring(const Mirroring& mirroring) { mirrorings_.push_back(mirroring); }
  void PopMirroring() { mirrorings_.pop_back(); }
  std::optional<Mirroring> current_mirroring() const {
    return mirrorings_.empty() ? std::nullopt : std::optional(mirrorings_.back());
  }

  const OpRegistry& registry() const { return *registry_; }
  // For a pass after which ops are uses of other definitions, of the same names.
  void SetRegistry(std::shared_ptr<const OpRegistry> registry) {
    registry_ = registry.get();
    own_registry_ = std::move(registry);
  }
  const std::vector<Op>& ops() const { return ops_; }
  std::vector<Op>& mutable_ops() { return ops_; }
  const Op& op(OpId id) const { return ops_[id]; }
  Op& mutable_op(OpId id) { return ops_[id]; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo& tensor(TensorId id) const { return tensors_[id]; }
  const TensorType& type(TensorId id) const { return tensors_[id].type; }
  const Op& producer(TensorId id) const { return ops_[tensors_[id].producer]; }
  std::optional<OpId> FindOp(std::string_view name) const;
  // Consumers of every tensor: (op, input index) in op order.
  std::vector<std::vector<std::pair<OpId, int>>> Consumers() const;
  // Keeps only the ops for which keep[id], and with each the producers of its inputs (CHECK);
  // renumbers ops and tensors everywhere. Ops stay in order. A Minimize request goes with its loss
  // or with the last of the variables that it lists; a gradient with either of its tensors.
  void Prune(const std::vector<bool>& keep);
  // For a pass that lays a tensor out otherwise; it also changes the ops around it accordingly.
  void SetShape(TensorId id, Shape shape) { tensors_[id].type.shape = std::move(shape); }
  void SetDType(TensorId id, DType dtype) { tensors_[id].type.dtype = dtype; }
  // Moves ops into a topological order (stable). Needed after a pass that rewires inputs. Renumbers
  // ops; tensors keep their ids.
  void SortTopologically();
  // Of the ops that could be next, the one with the least key is: the op, or one beside which it
  // should stand.
  void SortTopologically(const std::vector<OpId>& keys);

  std::vector<MinimizeRequest>& minimize() { return minimize_; }
  const std::vector<MinimizeRequest>& minimize() const { return minimize_; }
  // d loss / d tensor after the autograd pass, for fetches of gradients: (of, gradient).
  std::map<TensorId, TensorId>& gradients() { return gradients_; }
  const std::map<TensorId, TensorId>& gradients() const { return gradients_; }
  bool training = false;  // dropout is active; Minimize sets it

  // One line an op, e.g.
  //   %2:f32[64, 512] = matmul "fc1.matmul" (%0, %1) {transpose_b=false} on=cpu[4]{...}
  //   acts_per_step=1
  //       sbp=(S(0), B)->(S(0)) hint=(-) fwd="..." at train.cc:12
  // with only the parts that are set; micro_batches=(S(0), B)->(S(0)) is the layout over
  // micro-batches, block=1 is Op::block, "again" is Op::is_again. An op without outputs starts with
  // its type. What is not an op follows with an @:
  //   @minimize loss=%9 optimizer="adam_update" {beta1=0.9} lr=%3 variables=("w") clip=1.0
  //       micro_batches=4 groups=({frozen=false names="*.bias" rate=0.5 weight_decay=0.0})
  //       first_bucket=64 bucket=256 at train.cc:20
  //   @gradient %1 = %12
  //   @training
  // Parse reads it back (tests write graphs so); there, blank lines and lines that begin with # are
  // skipped, and an op may refer to later lines. Types are checked through the registry, except of
  // ops with a layout over micro-batches.
  std::string ToString() const;
  static absl::StatusOr<LogicalGraph> Parse(std::string_view text, const OpRegistry* registry);

 private:
  // What its inputs and attributes make of an op's outputs; an error says why they cannot be.
  absl::StatusOr<std::optional<Mirroring>> MirroringOf(const Op& op) const;
  void MirrorInputs(const OpDef& def, Op& op);
  // Of all tensors, where nothing but the ops is known.
  absl::Status DeriveMirrorings();
  friend class Tensor;

  // Made when it is first asked for; a copy of the graph has another.
  class Place {
   public:
    Place() = default;
    Place(const Place&) {}
    Place& operator=(const Place&) { return *this; }
    ~Place();
    const std::shared_ptr<GraphPlace>& Of(LogicalGraph* graph);

   private:
    std::shared_ptr<GraphPlace> shared_;
  };

  Place place_;
  const OpRegistry* registry_;
  std::shared_ptr<const OpRegistry> own_registry_;  // or null; shared with copies of the graph
  std::vector<Op> ops_;
  std::vector<TensorInfo> tensors_;
  std::vector<MinimizeRequest> minimize_;
  std::map<TensorId, TensorId> gradients_;
  std::vector<std::string> scopes_;
  std::vector<std::optional<Placement>> placements_;
  OpId current_forward_ = kNone;
  int open_blocks_ = 0;
  int last_block_ = 0;
  std::vector<Mirroring> mirrorings_;
  // Names taken, also by ops that were pruned -> how often each was asked for.
  std::map<std::string, int> names_;
  absl::Status status_;
  // File names of a parsed graph's locations; shared because copies of the graph point into it.
  std::shared_ptr<const std::set<std::string>> files_;
};

}  // namespace braid
