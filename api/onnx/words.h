// Text in models. Only the host sees it: a tensor of text is the places (i64) of its words in a
// list.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/onnx/value.h"
#include "runtime/array.h"

namespace braid::onnx {

class NodeProto;
class TensorProto;

bool IsText(const TensorProto& tensor);
// The words of a tensor, each one as often as it stands there, and its places in them. DATA_LOSS if
// there are more or fewer than its dims say.
struct Text {
  Array places;
  Words words;
};
absl::StatusOr<Text> TextOf(const TensorProto& tensor);

// Of which words the first output of a node is; null: it is no text. UNIMPLEMENTED if an input is
// text, and the operator does more than move it.
absl::StatusOr<Words> WordsMadeBy(const NodeProto& node, const std::vector<Value>& inputs);
// Whether it makes text of text: there is nothing to cast.
bool CastsText(const NodeProto& node, const std::vector<Value>& inputs);

}  // namespace braid::onnx
