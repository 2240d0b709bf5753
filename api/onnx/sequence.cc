// Sequences and optionals. Their lengths are known when a model is imported, so that they are lists
// of tensors, and nothing of them is left in the job.
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

constexpr int64_t kMaxParts = 1 << 14;

absl::StatusOr<Values> TranslateConstruct(const NodeView& n) {
  Values values;
  for (int i = 0; i < n.num_inputs(); ++i) {
    if (!n.value(i).is_tensor()) return Wrong(absl::StrCat("input ", i, " is no tensor"));
    values.push_back(n.value(i));
  }
  return Values{SequenceOf(std::move(values))};
}

absl::StatusOr<Values> TranslateEmpty(const NodeView& n) {
  n.Ignore("dtype");
  return Values{SequenceOf({})};
}

// Input i as a place in a list, negative ones from the end; `otherwise` without the input.
absl::StatusOr<int64_t> Position(const NodeView& n, int i, int64_t size, int64_t otherwise) {
  if (!n.HasInput(i)) return otherwise;
  BRAID_ASSIGN_OR_RETURN(const int64_t position, n.KnownInt(i));
  if (position >= -size && position < size) return position < 0 ? position + size : position;
  return Wrong(absl::StrCat("position ", position, " of ", size));
}

absl::StatusOr<Values> TranslateAt(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Values values, n.Sequence(0));
  BRAID_ASSIGN_OR_RETURN(const int64_t at, Position(n, 1, static_cast<int64_t>(values.size()), 0));
  return Values{values[at]};
}

absl::StatusOr<Values> TranslateInsert(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(Values values, n.Sequence(0));
  const auto size = static_cast<int64_t>(values.size());
  if (!n.value(1).is_tensor()) return Wrong("input 1 is no tensor");
  if (size >= kMaxParts) return Lacking(absl::StrCat("a sequence of more than ", kMaxParts));
  int64_t at = size;
  if (n.HasInput(2)) {
    // One past the end is legal.
    BRAID_ASSIGN_OR_RETURN(at, n.KnownInt(2));
    if (at != size) {
      BRAID_ASSIGN_OR_RETURN(at, Position(n, 2, size, size));
    }
  }
  values.insert(values.begin() + at, n.value(1));
  return Values{SequenceOf(std::move(values))};
}

absl::StatusOr<Values> TranslateErase(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(Values values, n.Sequence(0));
  if (values.empty()) return Wrong("the sequence is empty");
  const auto size = static_cast<int64_t>(values.size());
  BRAID_ASSIGN_OR_RETURN(const int64_t at, Position(n, 1, size, size - 1));
  values.erase(values.begin() + at);
  return Values{SequenceOf(std::move(values))};
}

absl::StatusOr<Values> TranslateLength(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Values values, n.Sequence(0));
  return Values{ConstantOf(Array::Scalar(static_cast<int64_t>(values.size())))};
}

absl::StatusOr<Values> TranslateSplitToSequence(const NodeView& n) {
  if (!n.value(0).is_tensor()) return Wrong("input 0 is no tensor");
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  const bool keep_dims = n.Flag("keepdims", true) || n.HasInput(1);
  const int64_t all = n.shape()[static_cast<int>(axis)];
  int64_t each = 1;  // parts of one size, the last one maybe smaller
  Ints sizes;
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(sizes, n.KnownInts(1));
    if (n.rank(1) == 0) {
      each = sizes[0];
      sizes.clear();
    }
  }
  if (each < 1 || all / each >= kMaxParts) {
    return Wrong(absl::StrCat("an axis of ", all, " is cut into parts of ", each));
  }
  if (sizes.empty()) {
    sizes.assign(all / each, each);
    if (all % each != 0) sizes.push_back(all % each);
  }
  BRAID_ASSIGN_OR_RETURN(Values parts,
                         n.surroundings().Compute({n.value(0)}, [&](const NodeView& inner) {
                           Tensors parts = Split(inner.in(0), sizes, axis);
                           if (!keep_dims) {
                             for (Tensor& part : parts) part = Squeeze(part, axis);
                           }
                           return parts;
                         }));
  return Values{SequenceOf(std::move(parts))};
}

absl::StatusOr<Values> TranslateConcatFromSequence(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Values values, n.Sequence(0));
  if (values.empty()) return Wrong("the sequence is empty");
  const bool is_new = n.Flag("new_axis");
  const int rank = values[0].is_tensor() ? values[0].type().shape.rank() : 0;
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0, rank + (is_new ? 1 : 0)));
  return n.surroundings().Compute(values, [&](const NodeView& inner) {
    Tensors parts = inner.inputs();
    if (is_new) {
      for (Tensor& part : parts) part = ExpandDims(part, axis);
    }
    return Tensors{Concat(parts, axis)};
  });
}

// The body, for each element of the first sequence and the elements beside it; tensors go to all.
absl::StatusOr<Values> TranslateMap(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const GraphProto* body, n.Graph("body"));
  BRAID_ASSIGN_OR_RETURN(const Values first, n.Sequence(0));
  std::vector<Values> lists(n.num_outputs());
  for (size_t i = 0; i < first.size(); ++i) {
    Values inputs;
    for (int k = 0; k < n.num_inputs(); ++k) {
      const Value value = n.value(k);
      if (value.sequence == nullptr) {
        inputs.push_back(value);
      } else if (value.sequence->size() == first.size()) {
        inputs.push_back((*value.sequence)[i]);
      } else {
        return Wrong(absl::StrCat("the sequences have ", first.size(), " and ",
                                  value.sequence->size(), " elements"));
      }
    }
    BRAID_ASSIGN_OR_RETURN(const Values outputs,
                           n.surroundings().RunGraph(*body, std::move(inputs)));
    if (outputs.size() != lists.size()) {
      return Wrong(
          absl::StrCat("the body has ", outputs.size(), " outputs, the node ", lists.size()));
    }
    for (size_t k = 0; k < lists.size(); ++k) lists[k].push_back(outputs[k]);
  }
  Values results;
  for (Values& list : lists) results.push_back(SequenceOf(std::move(list)));
  return results;
}

absl::StatusOr<Values> TranslateOptional(const NodeView& n) {
  n.Ignore("type");
  return Values{n.HasInput(0) ? n.value(0) : Value{.is_empty_optional = true}};
}

absl::StatusOr<Values> TranslateHasElement(const NodeView& n) {
  const bool has = n.HasInput(0) && !n.value(0).is_empty_optional;
  return Values{ConstantOf(Array::Scalar(has))};
}

absl::StatusOr<Values> TranslateGetElement(const NodeView& n) {
  if (n.value(0).is_empty_optional) return Wrong("the optional is empty");
  return Values{n.value(0)};
}

}  // namespace

void AddSequence(Translators& all) {
  all.AddValues("SequenceConstruct", {1, kAnyNumber}, TranslateConstruct);
  all.AddValues("SequenceEmpty", {0, 0}, TranslateEmpty);
  all.AddValues("SequenceAt", {2, 2}, TranslateAt);
  all.AddValues("SequenceInsert", {2, 3}, TranslateInsert);
  all.AddValues("SequenceErase", {1, 2}, TranslateErase);
  all.AddValues("SequenceLength", {}, TranslateLength);
  all.AddValues("SequenceMap", {1, kAnyNumber}, TranslateMap);
  all.AddValues("SplitToSequence", {1, 2}, TranslateSplitToSequence);
  all.AddValues("ConcatFromSequence", {}, TranslateConcatFromSequence);
  all.AddValues("Optional", {0, 1}, TranslateOptional);
  all.AddValues("OptionalHasElement", {0, 1}, TranslateHasElement);
  all.AddValues("OptionalGetElement", {}, TranslateGetElement);
}

}  // namespace braid::onnx
