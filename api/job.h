// A job being recorded: what a user's function is called with. Operators (graph/functional.h) and
// layers (api/layers.h) append to its graph; the methods here are what is not an operator.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/ddp.h"
#include "api/optimizers.h"
#include "api/server.h"
#include "graph/functional.h"
#include "graph/logical_graph.h"
#include "graph/placement.h"
#include "runtime/data/dataset_kinds.h"

namespace braid {

class ProgramWatch;

// What comes where a batch would reach over the end of an epoch.
enum class Last : uint8_t {
  kWrap,  // the first samples of the next epoch
  kDrop,  // the next epoch's first batch: some samples are left out
  kPad,   // samples of the same epoch again, for which SampleMask is 0
};

struct BatchOptions {
  int64_t batch = 1;     // samples of the whole job and step (all micro-batches)
  bool shuffle = false;  // by the session's seed, the reader's name and the epoch
  Last last = Last::kWrap;
  std::string name = "read";  // readers of the same name and dataset go through the same order
  // Element type of the floating fields.
  DType dtype = DType::kF32;
};

struct MinimizeOptions {
  int micro_batches = 1;               // the step is computed in so many parts, gradients added up
  double clip_global_norm = 0;         // 0: gradients are not clipped
  std::vector<Tensor> variables = {};  // empty: every trainable one that the loss depends on
  // Of these, what is trained at another rate, with another decay or not at all, in the one
  // backward pass: {{.names = "*.bias", .weight_decay = 0}}.
  std::vector<VariableGroup> groups = {};
  // Averages of the variables beside them, which Job::UseAverages computes with.
  std::optional<Ema> ema = std::nullopt;
  // More than the sum of mirrored gradients: hooks, steps without synchronisation.
  std::optional<Ddp> ddp = std::nullopt;
  // Where variables live on parameter servers.
  std::optional<Server> server = std::nullopt;
  // Not empty: fetches under this name the norm of all gradients together, before they are clipped,
  // and under "NORMS.NAMES" that of each group.
  std::string norms = {};
};

class Job {
 public:
  // All borrowed from the Session.
  Job(LogicalGraph* graph, const Placement& devices, DatasetCache* datasets);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  LogicalGraph& graph() { return *graph_; }
  // Every device of the cluster, node by node.
  const Placement& devices() const { return devices_; }

  // The next `batch` samples every step: one tensor [batch, sample...] per field. Each device reads
  // its own rows; every node needs the files.
  std::vector<Tensor> ReadFields(const DatasetSpec& dataset, BatchOptions options,
                                 SourceLocation where = Here());
  // Of a dataset with two fields: auto [image, label] = job.Read(braid::Mnist(prefix), {...}).
  std::array<Tensor, 2> Read(const DatasetSpec& dataset, BatchOptions options,
                             SourceLocation where = Here());

  // How many samples a dataset has; 0 after an error.
  int64_t NumSamples(const DatasetSpec& dataset, SourceLocation where = Here());
  // f32 [batch] of a reader: 1 for the samples of the epoch, 0 for those that Last::kPad fills the
  // last batch up with. Sums over all steps of an epoch, divided by NumSamples, are means over the
  // dataset: Sum(SampleMask(data, options) * values).
  Tensor SampleMask(const DatasetSpec& dataset, const BatchOptions& options,
                    SourceLocation where = Here());

  // A value that Run is given: {.feeds = {{"x", array}}}. In a session on a world all ranks feed
  // the same, unless it is inside Mirrored: there each rank feeds a value of its own.
  Tensor Input(std::string name, Shape shape, DType dtype = DType::kF32,
               SourceLocation where = Here());

  // The value comes to the host at every step, under `name`; in a session on a world to each rank,
  // and of a mirrored value its own.
  void Fetch(std::string name, Tensor value, SourceLocation where = Here());

  // Each `every` steps a line on standard output: the step, the name, type, range, mean and first
  // numbers of the value. It comes to the host at every step.
  void Print(Tensor value, std::string name, int64_t every = 1, SourceLocation where = Here());

  // Changes the variables so that `loss` (a floating scalar) becomes smaller.
  void Minimize(Tensor loss, const OptimizerSpec& optimizer, MinimizeOptions options = {},
                SourceLocation where = Here());
  // d loss / d x of this job's Minimize.
  Tensor GradientOf(Tensor x, SourceLocation where = Here());

  // The job, which minimizes nothing, computes with the averages (MinimizeOptions::ema) of those of
  // its trainable variables that have one, instead of with these. FAILED_PRECONDITION if none has.
  void UseAverages(SourceLocation where = Here());

  // A job trains if it calls Minimize; this says otherwise. Dropout and batch normalisation follow
  // it.
  void SetTraining(bool is_training);

  // Ops recorded inside `fn` sit on `placement`: job.devices().node(1), say, or
  // job.devices().WithHierarchy({2, 4}), whose error is the job's.
  template <typename Function>
  auto On(const absl::StatusOr<Placement>& placement, Function fn, SourceLocation where = Here()) {
    EnterPlacement(placement, where);
    struct Pop {
      LogicalGraph* graph;
      ~Pop() { graph->PopPlacement(); }
    } pop{graph_};
    return fn();
  }

  // Inside `fn`, each device does what a process does in an SPMD program: values that it reads or
  // draws are its own (graph/functions/mirrored.h), and Read's batch is that of each device; what
  // has no value of a device in it (variables, inputs, constants) is shared. One Mean over the
  // devices at the end makes data parallelism of it:
  //   Tensor loss = job.Mirrored([&] {
  //     auto [x, label] = job.Read(data, {.batch = 32});
  //     return MeanMirrored(Loss(Model(x), label));
  //   });
  // Over all devices of the placement that is current, or over some dimensions of it.
  template <typename Function>
  auto Mirrored(Function fn, SourceLocation where = Here()) {
    return Mirrored(std::vector<int>{}, std::move(fn), where);
  }
  template <typename Function>
  auto Mirrored(const std::vector<int>& dims, Function fn, SourceLocation where = Here()) {
    EnterMirrored(dims, where);
    struct Pop {
      LogicalGraph* graph;
      ~Pop() {
        graph->PopMirroring();
        graph->PopPlacement();
      }
    } pop{graph_};
    return fn();
  }

  // Of the ops recorded inside `fn`, the backward pass has nothing but what comes in from outside:
  // it computes them once more, right before it needs them. Less memory, for the time of about one
  // more forward pass of the block. The numbers are the same bits, but for the order of sums
  // between nodes if the block itself exchanges some. Values that the outside uses are kept, as are
  // random numbers without an operand.
  template <typename Function>
  auto Recompute(Function fn) {
    graph_->PushBlock();
    struct Pop {
      LogicalGraph* graph;
      ~Pop() { graph->PopBlock(); }
    } pop{graph_};
    return fn();
  }

 private:
  friend class Session;
  // The dataset, or null after an error of the reader of that name.
  std::shared_ptr<const Dataset> Open(const DatasetSpec& dataset, const std::string& name,
                                      SourceLocation where);
  void EnterPlacement(const absl::StatusOr<Placement>& placement, SourceLocation where);
  void EnterMirrored(const std::vector<int>& dims, SourceLocation where);
  // Whether each host feeds or fetches its own of this; an error if some hosts would have none.
  bool IsOfEachHost(const std::optional<Mirroring>& mirroring, const std::string& what,
                    SourceLocation where);

  LogicalGraph* graph_;
  const Placement& devices_;
  DatasetCache* datasets_;
  // Each device has a host of its own: it is a rank of a world.
  bool has_host_each_ = false;
  // Gradients are added up on each device, and nothing is updated (Ddp::no_sync).
  bool is_without_sync_ = false;
  bool has_no_sync_ = false;  // a Minimize asks for a second job that is so
  // Told what opening takes place, before it begins; nullptr: nobody is.
  ProgramWatch* watch_ = nullptr;
  std::optional<bool> training_;
  std::optional<SourceLocation> averages_;  // where UseAverages was called
  // Of its readers: how many steps an epoch is, or why that is no whole number.
  std::vector<absl::StatusOr<int64_t>> epochs_;
  struct Printed {
    std::string label;
    int64_t every = 1;
  };
  std::map<std::string, Printed> prints_;  // by the names of the fetches that Print made
};

}  // namespace braid
