// An ONNX file as it is parsed, without the bytes of its large weights: these stay in the file
// until somebody reads them, so that a model takes no memory for what its variables hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/onnx/tensor_proto.h"

namespace braid::onnx {

class ModelProto;

struct ModelFile {
  std::unique_ptr<ModelProto> proto;
  // Of initializers of the graph, by number, whose raw_data was left out.
  std::map<int, FileRange> left_out;
};

// NOT_FOUND without the file, DATA_LOSS if it is no ONNX model or is damaged, OUT_OF_RANGE if it is
// larger than such a file can be.
absl::StatusOr<ModelFile> ReadModelFile(const std::string& path);

}  // namespace braid::onnx
