// An ONNX file as it is parsed, without the bytes of its large weights, be they initializers or
// values of Constant nodes: these stay in the file until somebody reads them, so that a model takes
// no memory for what its variables hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/onnx/tensor_proto.h"

namespace braid::onnx {

class ModelProto;
class NodeProto;
class TensorProto;

struct ModelFile {
  std::unique_ptr<ModelProto> proto;
  // Of initializers of the graph, by number, whose raw_data was left out.
  std::map<int, FileRange> left_out;
  // The same of the graph's nodes that are IsTensorConstant.
  std::map<int, FileRange> left_out_of_nodes;
};

// Whether it is a Constant that has its value as a tensor, as weights are written by some
// exporters.
bool IsTensorConstant(const NodeProto& node);
// As if the raw_data of `tensor`, these bytes of the file, had not been left out.
absl::Status PutBack(const std::string& path, const FileRange& range, TensorProto& tensor);

// NOT_FOUND without the file, DATA_LOSS if it is no ONNX model or is damaged, OUT_OF_RANGE if it is
// larger than such a file can be.
absl::StatusOr<ModelFile> ReadModelFile(const std::string& path);

}  // namespace braid::onnx
