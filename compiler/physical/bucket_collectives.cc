#include "compiler/physical/bucket_collectives.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/physical/chain_classes.h"
#include "compiler/physical/regroup.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// Only all_reduces with equal keys can be one: placement, dimension, acts, period of the input,
// dtype, reduction.
using BucketKey = std::tuple<Placement, int, int, int, DType, Sbp::Kind>;

struct Bucket {
  std::vector<GroupId> all_reduces;
  int64_t bytes = 0;
  size_t end = 0;  // past the last member of the class that writes into it
};

class Bucketing {
 public:
  Bucketing(const PhysicalGraph& graph, const BucketOptions& options)
      : graph_(graph), options_(options), consumers_(graph.Consumers()), result_(graph) {}

  absl::StatusOr<Regrouping> Run() {
    BRAID_ASSIGN_OR_RETURN(const ChainClasses classes, FindChainClasses(graph_));
    for (const std::vector<GroupId>& members : classes.members) {
      size_t begin = 0;
      for (size_t at = 0; at < members.size(); ++at) {
        if (!Take(classes.urgent_readers[members[at]], at)) continue;
        Close(members, begin);
        begin = at + 1;
      }
      Close(members, begin);
    }
    return std::move(result_);
  }

 private:
  bool IsBucketable(GroupId id) const {
    const TaskGroup& group = graph_.group(id);
    const auto* const collective = std::get_if<Collective>(&group.work);
    if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce ||
        group.inputs.size() != 1 || group.outputs.size() != 1 || group.inputs[0].period != 1) {
      return false;
    }
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    if (in.parts.size() != 1 || out.parts.size() != 1) return false;
    // A register can be in one bucket only.
    using Reader = std::pair<GroupId, int>;
    const std::vector<Reader>& readers = consumers_[in.id];
    return std::all_of(readers.begin(), readers.end(), [&](const Reader& reader) {
      return reader.first == id || graph_.group(reader.first).is<Compute>();
    });
  }

  BucketKey KeyOf(const TaskGroup& group) const {
    const auto& collective = std::get<Collective>(group.work);
    return {group.placement,
            collective.hierarchy_dim,
            group.acts_per_step,
            graph_.reg(group.inputs[0].reg).period,
            collective.movement.source.type.dtype,
            collective.movement.reduction};
  }

  // Notes what the class's member at `at` gives to communication; true if buckets end with it.
  bool Take(const std::vector<GroupId>& readers, size_t at) {
    bool ends = false;
    for (GroupId id : readers) {
      if (!IsBucketable(id)) {
        ends = true;
        continue;
      }
      const TaskGroup& group = graph_.group(id);
      BucketKey key = KeyOf(group);
      const int64_t limit = with_bucket_.contains(key) ? options_.bytes : options_.first_bytes;
      Bucket& bucket = open_[std::move(key)];
      bucket.all_reduces.push_back(id);
      bucket.bytes += graph_.reg(group.outputs[0]).slot_bytes;
      bucket.end = at + 1;
      ends = ends || bucket.bytes >= limit;
    }
    return ends;
  }

  // The open buckets end; the members that write them become one group.
  void Close(const std::vector<GroupId>& members, size_t begin) {
    size_t end = begin;
    for (const auto& [key, bucket] : open_) {
      with_bucket_.insert(key);
      if (bucket.all_reduces.size() < 2) continue;
      end = std::max(end, bucket.end);
      std::vector<GroupRegisterId> inputs, outputs;
      for (GroupId id : bucket.all_reduces) {
        result_.group_of[id] = bucket.all_reduces[0];
        inputs.push_back(graph_.group(id).inputs[0].reg);
        outputs.push_back(graph_.group(id).outputs[0]);
      }
      result_.merged_registers.push_back(std::move(inputs));
      result_.merged_registers.push_back(std::move(outputs));
    }
    for (size_t at = begin; at < end; ++at) result_.group_of[members[at]] = members[begin];
    open_.clear();
  }

  const PhysicalGraph& graph_;
  const BucketOptions options_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::map<BucketKey, Bucket> open_;
  std::set<BucketKey> with_bucket_;  // keys that have had one
  Regrouping result_;
};

}  // namespace

absl::StatusOr<PhysicalGraph> BucketCollectives(PhysicalGraph graph, const BucketOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const Regrouping regrouping, Bucketing(graph, options).Run());
  if (regrouping.merged_registers.empty()) return graph;
  return Regroup(std::move(graph), regrouping);
}

}  // namespace braid::compiler
