// Models in ONNX files (https://onnx.ai): read once, then used in jobs like any other function of
// tensors, so that they are placed, split and trained as what is written by hand.
//
//   BRAID_ASSIGN_OR_RETURN(braid::onnx::Model model, braid::onnx::Load("resnet.onnx"));
//   session->Compile("infer", [&](Job& job) {
//     const Tensor image = job.Input("image", {8, 3, 224, 224});
//     absl::StatusOr<std::vector<Tensor>> outputs = model.Apply(job, {image});
//     ...
//   });
//   BRAID_RETURN_IF_ERROR(model.LoadInto(*session));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/job.h"
#include "api/weights.h"
#include "graph/logical_graph.h"
#include "graph/sbp.h"
#include "runtime/array.h"

namespace braid {
class Session;
}  // namespace braid

namespace braid::onnx {

class ModelProto;
struct WeightRole;

// One dimension of an input or output as the file has it.
struct Dim {
  std::optional<int64_t> size;  // none: any
  std::string name;             // what the file calls a size that it leaves open; may be ""
};

// What the file says of an input or output.
struct ValueInfo {
  std::string name;
  bool is_sequence = false;              // of tensors of this type
  bool is_optional = false;              // may be without a value
  std::optional<DType> dtype;            // none: not said, or elements that Braid does not have
  std::optional<std::vector<Dim>> dims;  // none: of any rank
  std::string ToString() const;          // "image f32[batch, 3, 224, 224]"
};

// What Apply is given for an input of the model: a tensor of the job, a value that is known
// already, or a tensor together with the value that it always has; several of these for a sequence.
// Where a model computes shapes or axes Braid needs numbers when it records a job; a tensor alone
// has none.
struct Argument {
  Argument(Tensor t) : tensor(t) {}                                          // NOLINT: converts
  Argument(Array a) : array(std::make_shared<const Array>(std::move(a))) {}  // NOLINT: converts
  Argument(Tensor t, Array a) : tensor(t), array(std::make_shared<const Array>(std::move(a))) {}
  static Argument Sequence(std::vector<Argument> elements);
  static Argument EmptyOptional() { return Argument(Tensor()); }

  Tensor tensor;
  std::shared_ptr<const Array> array;
  std::shared_ptr<const std::vector<Argument>> sequence;
};

// The numbers of a weight. Large ones stay in the file that they came from until somebody reads
// them, so that file must not change before.
class KnownNumbers {
 public:
  explicit KnownNumbers(std::shared_ptr<const Array> array);
  explicit KnownNumbers(Array array)
      : KnownNumbers(std::make_shared<const Array>(std::move(array))) {}
  // `place`: where they stand as they lie in memory, if they do.
  KnownNumbers(TensorType type, std::function<absl::StatusOr<Array>()> read,
               std::optional<FilePart> place, std::function<absl::Status()> check);

  const TensorType& type() const { return type_; }
  int64_t num_bytes() const {
    return type_.shape.num_elements() * static_cast<int64_t>(SizeOf(type_.dtype));
  }
  // Whether Read reads a file, each time.
  bool are_in_file() const { return array_ == nullptr; }
  // ABORTED if the file has changed, NOT_FOUND if it is gone.
  absl::StatusOr<std::shared_ptr<const Array>> Read() const;
  // Where they stand in a file as they lie in memory; nothing: elsewhere, or in another form.
  const std::optional<FilePart>& place() const { return place_; }
  // As Read says of the file, without reading it.
  absl::Status CheckFile() const { return check_ == nullptr ? absl::OkStatus() : check_(); }

 private:
  TensorType type_;
  std::shared_ptr<const Array> array_;
  std::function<absl::StatusOr<Array>()> read_;
  std::optional<FilePart> place_;
  std::function<absl::Status()> check_;
};
using NumbersByName = std::map<std::string, std::shared_ptr<const KnownNumbers>>;

struct ApplyOptions {
  bool is_trainable = true;  // Minimize changes weights
  // Which of the floating ones. Without it all but those that no optimizer should touch: the
  // statistics of batch normalization, weights of one element or with numbers that are not finite,
  // what Pow, Clip, Where and quantization read as their constants, tables of which only positions
  // are computed. What is left alone is logged once.
  std::function<bool(const std::string& name, const TensorType& type)> trains = nullptr;
  // How weights are laid out over the devices, by their ONNX names; the others as Braid sees fit.
  std::map<std::string, NdSbp> layouts = {};
};

// A model that was read. Apply may be called in several jobs.
class Model {
 public:
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  // In the file's order. Values that the file itself has (initializers) are no inputs.
  const std::vector<ValueInfo>& inputs() const { return inputs_; }
  const std::vector<ValueInfo>& outputs() const { return outputs_; }
  // How often each operator stands in the file: "Conv", "com.microsoft.FusedMatMul". Graphs in
  // nodes and functions count once.
  const std::map<std::string, int64_t>& operators() const { return operators_; }
  // Who wrote it and what it imports: "pytorch 2.15, opset 20".
  const std::string& origin() const { return origin_; }
  // The values of the file's initializers and constants by name: its weights.
  const NumbersByName& weights() const { return weights_; }

  // Appends the model to a job; one argument per input, and the result has one tensor per output
  // (of a sequence its tensors, one after another). Weights become variables of their ONNX names
  // under the current scope, trained as the options say; operators are named by their nodes.
  // UNIMPLEMENTED if the model needs what Braid does not have, INVALID_ARGUMENT if arguments or the
  // file are wrong: with file, node and operator. The job has the error too, so that Compile
  // returns it.
  absl::StatusOr<std::vector<Tensor>> Apply(LogicalGraph& graph,
                                            const std::vector<Argument>& arguments,
                                            const ApplyOptions& options = {});
  absl::StatusOr<std::vector<Tensor>> Apply(Job& job, const std::vector<Argument>& arguments,
                                            const ApplyOptions& options = {}) {
    return Apply(job.graph(), arguments, options);
  }

  // Of outputs that are text, as class labels may be: words, of which a job fetches the places
  // (i64). Known once the model has been applied.
  const std::map<std::string, std::vector<std::string>>& labels() const { return labels_; }
  // The variables that Apply made in any job, by their full name, with the file's values.
  const NumbersByName& variables() const { return variables_; }
  // Gives the session's variables the values of the file, once the jobs are compiled: devices read
  // what they hold, so that this needs little memory beside the variables. Weights that no compiled
  // job needs are left out; FAILED_PRECONDITION if it needs none of them.
  absl::Status LoadInto(Session& session) const;

 private:
  friend absl::StatusOr<Model> Load(const std::string& file);
  Model();
  absl::StatusOr<std::vector<Tensor>> Import(LogicalGraph& graph,
                                             const std::vector<Argument>& arguments,
                                             const ApplyOptions& options);

  std::string file_, origin_;
  std::map<std::string, int64_t> operators_;
  bool is_applied_ = false;
  std::unique_ptr<ModelProto> proto_;  // without its weights
  std::unique_ptr<std::map<std::string, WeightRole>> roles_;
  std::vector<ValueInfo> inputs_, outputs_;
  NumbersByName weights_, variables_;
  std::map<std::string, std::vector<std::string>> texts_;  // of weights_ that are text: its words
  std::map<std::string, std::vector<std::string>> labels_;
};

// Weights may be in files beside it (external data); large ones stay in their files until LoadInto.
// NOT_FOUND without the file, DATA_LOSS if it is no ONNX model or is damaged, OUT_OF_RANGE if it is
// larger than 2 GiB, UNIMPLEMENTED for weights of types that Braid does not have.
absl::StatusOr<Model> Load(const std::string& file);

}  // namespace braid::onnx
