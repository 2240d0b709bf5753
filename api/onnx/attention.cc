// Attention and what stands beside it.
#include "api/onnx/translators.h"

namespace braid::onnx {

void AddAttention(Translators&) {}

}  // namespace braid::onnx
