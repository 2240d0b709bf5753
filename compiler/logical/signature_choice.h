// Picks the cheapest legal n-d signature of one op, given where its inputs are. infer_sbp asks it
// for op after op; equal questions are answered from memory.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/boxing/boxing.h"
#include "compiler/cost.h"
#include "compiler/logical/placement_table.h"
#include "graph/logical_graph.h"
#include "graph/op_def.h"

namespace braid::compiler {

// One NdSbp per operand.
struct NdSignature {
  std::vector<NdSbp> inputs, outputs;
  std::string ToString() const;  // "([S(0), S(0)], [B, B])->([S(0), S(0)])"
};

// An input as it stands.
struct InputState {
  TensorType type;
  MicroBatchLayout micro_batch;
  int placement = kNone;           // id in the chooser's placements
  std::optional<NdSbp> sbp;        // none: a source that will take any split or B
  std::vector<NdSbp> ready;        // layouts on the op's placement that cost nothing more
  std::optional<NdSbp> required;   // hard
  std::optional<NdSbp> preferred;  // what the forward op uses; kept if a signature can
  uint64_t mirrored = 0;           // bit d: it is M on dimension d, and nowhere else
};

struct OutputState {
  std::optional<NdSbp> hint;    // hard
  std::optional<NdSbp> wanted;  // on the op's placement: getting there is part of the cost
  uint64_t mirrored = 0;        // as of an input
};

struct ChoiceRequest {
  const Op* op;
  int placement = kNone;
  std::vector<InputState> inputs;
  std::vector<OutputState> outputs;
};

class SignatureChooser {
 public:
  // All are borrowed. Seconds are those of the planner's machine. `explanations` may be null; else
  // every choice adds its alternatives. With `layout_seed` no choice is by its cost: each is drawn
  // by that seed and the op's name.
  SignatureChooser(const LogicalGraph& graph, BoxingPlanner& planner,
                   std::map<std::string, std::string>* explanations,
                   std::optional<uint64_t> layout_seed);

  PlacementTable& placements() { return placements_; }

  // The candidates are products of legal 1-d signatures, one per dimension of the hierarchy. Hints
  // and requirements filter each dimension's list, then preferences; M stands where operands are
  // mirrored; a dimension on which all
  // inputs are whole stays whole; one of size 1 is B. Among what is left the least (seconds of
  // transfers + seconds of arithmetic) wins, the earlier on a tie. A signature that makes addends
  // out of whole or split inputs also pays for adding them up.
  // Where choices are drawn, neither preferences nor wholeness count, and any of what is left wins.
  // INVALID_ARGUMENT naming op, line and the legal signatures if a hint cannot hold.
  absl::StatusOr<NdSignature> Choose(const ChoiceRequest& request);

  // The legal 1-d signatures of an op on a placement, all-B first; of one with mirrored operands
  // also the one that it has there, as the last.
  const std::vector<SbpSignature>& Signatures(const Op& op, int placement);
  // "B" on dimensions of size 1; a 1-d layout on an n-d placement is that layout on every
  // dimension.
  NdSbp Normalize(const NdSbp& sbp, int placement) const;
  absl::Status HintError(const Op& op, const std::string& hint, int placement);

 private:
  struct OpClass {
    std::vector<SbpSignature> signatures;
    double seconds = 0;  // of its arithmetic, by one device alone
    int micro_batches = 1;
  };
  // Boxing's own figure takes long on many devices; the table's is good enough to drop most.
  enum class Price : uint8_t { kEstimated, kExact };
  using Candidates = std::vector<std::vector<int>>;  // per dimension: indices of signatures

  int ClassOf(const Op& op, int placement);
  absl::StatusOr<Candidates> Filter(const ChoiceRequest& request, const OpClass& op_class);
  void KeepCheapest(const ChoiceRequest& request, const OpClass& op_class, Candidates& candidates);
  absl::StatusOr<NdSignature> Pick(const ChoiceRequest& request, const OpClass& op_class,
                                   const Candidates& candidates);
  // Sound signatures that may be the cheapest, or all of them if they are to be explained or drawn
  // from, with estimated seconds.
  struct Estimates {
    std::vector<std::pair<double, NdSignature>> all;
    double least = std::numeric_limits<double>::infinity();
  };
  Estimates EstimateAll(const ChoiceRequest& request, const OpClass& op_class,
                        const Candidates& candidates);
  absl::Status NoneIsSound(const ChoiceRequest& request);
  using Alternatives = std::vector<std::pair<double, std::string>>;  // by seconds
  void Explain(const Op& op, const NdSignature& best, double seconds, Alternatives alternatives);
  double InputSeconds(const ChoiceRequest& request, const InputState& input, const NdSbp& to,
                      Price price);
  double Seconds(const ChoiceRequest& request, const OpClass& op_class,
                 const NdSignature& signature, Price price);
  double BoxingSeconds(const TensorType& type, const MicroBatchLayout& micro_batch,
                       std::pair<int, int> placements, const NdSbp& from, const NdSbp& to,
                       Price price);
  std::vector<int> KeyOf(const ChoiceRequest& request, int op_class);
  int Id(const NdSbp& sbp);
  int Id(const TensorType& type);

  const LogicalGraph& graph_;
  BoxingPlanner& planner_;
  std::map<std::string, std::string>* explanations_;
  const std::optional<uint64_t> layout_seed_;
  PlacementTable placements_;
  std::map<NdSbp, int> sbp_ids_;
  std::map<std::pair<DType, std::vector<int64_t>>, int> type_ids_;
  std::map<std::string, int> class_ids_;
  std::vector<OpClass> classes_;
  std::map<std::array<int, 8>, double> boxing_seconds_[2];  // by Price
  std::map<std::vector<int>, NdSignature> choices_;
};

}  // namespace braid::compiler
