#include "tests/conformance/onnx_model.h"

#include <braid/onnx.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::conformance {
namespace {

template <class Message>
absl::StatusOr<Message> ReadMessage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Message message;
  if (file && message.ParseFromIstream(&file)) return message;
  return absl::DataLossError(absl::StrCat("cannot read ", path));
}

// The tensors of an input's or output's file: of a sequence several, of an optional maybe none.
struct Stored {
  bool is_sequence = false;
  std::vector<Array> arrays;
};

absl::StatusOr<Stored> ReadStored(const std::string& path, const onnx::ValueInfo& info) {
  std::vector<onnx::TensorProto> tensors;
  bool is_sequence = info.is_sequence;
  if (info.is_optional) {
    BRAID_ASSIGN_OR_RETURN(const auto optional, ReadMessage<onnx::OptionalProto>(path));
    if (optional.has_tensor_value()) tensors.push_back(optional.tensor_value());
    for (const auto& tensor : optional.sequence_value().tensor_values()) tensors.push_back(tensor);
    is_sequence = optional.has_sequence_value();
  } else if (info.is_sequence) {
    BRAID_ASSIGN_OR_RETURN(const auto sequence, ReadMessage<onnx::SequenceProto>(path));
    tensors.assign(sequence.tensor_values().begin(), sequence.tensor_values().end());
  } else {
    BRAID_ASSIGN_OR_RETURN(auto tensor, ReadMessage<onnx::TensorProto>(path));
    tensors.push_back(std::move(tensor));
  }
  Stored stored = {.is_sequence = is_sequence};
  for (const onnx::TensorProto& tensor : tensors) {
    BRAID_ASSIGN_OR_RETURN(Array array, onnx::ToArray(tensor));
    // ONNX 1.12 writes the bits of bf16 as u16.
    if (info.dtype == DType::kBF16 && array.dtype() == DType::kU16) {
      Array bits(DType::kBF16, array.shape());
      std::memcpy(bits.mutable_bytes(), array.bytes(), array.num_bytes());
      array = std::move(bits);
    }
    stored.arrays.push_back(std::move(array));
  }
  return stored;
}

// input_0.pb, input_1.pb, ...
absl::StatusOr<std::vector<Stored>> ReadAll(const std::string& prefix,
                                            const std::vector<onnx::ValueInfo>& infos) {
  std::vector<Stored> all;
  for (const onnx::ValueInfo& info : infos) {
    BRAID_ASSIGN_OR_RETURN(Stored stored,
                           ReadStored(absl::StrCat(prefix, all.size(), ".pb"), info));
    all.push_back(std::move(stored));
  }
  return all;
}

}  // namespace

absl::StatusOr<OnnxCase> ReadOnnxCase(const std::string& directory, const OpRegistry& ops) {
  BRAID_ASSIGN_OR_RETURN(onnx::Model model, onnx::Load(directory + "/model.onnx"));
  const std::string data = directory + "/test_data_set_0/";
  BRAID_ASSIGN_OR_RETURN(const std::vector<Stored> inputs,
                         ReadAll(data + "input_", model.inputs()));
  BRAID_ASSIGN_OR_RETURN(const std::vector<Stored> outputs,
                         ReadAll(data + "output_", model.outputs()));
  OnnxCase result = {.graph = LogicalGraph(&ops)};
  const auto fed = [&](const Array& array) {
    const std::string name = absl::StrCat("in", result.feeds.size());
    result.feeds.insert_or_assign(name, array);
    return onnx::Argument(Input(result.graph, name, {array.dtype(), array.shape()}), array);
  };
  std::vector<onnx::Argument> arguments;
  for (const Stored& input : inputs) {
    std::vector<onnx::Argument> tensors;
    for (const Array& array : input.arrays) tensors.push_back(fed(array));
    if (input.is_sequence) {
      arguments.push_back(onnx::Argument::Sequence(std::move(tensors)));
    } else {
      arguments.push_back(tensors.empty() ? onnx::Argument::EmptyOptional() : tensors[0]);
    }
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<Tensor> made, model.Apply(result.graph, arguments));
  std::vector<Array> expected;
  for (const Stored& output : outputs) {
    expected.insert(expected.end(), output.arrays.begin(), output.arrays.end());
  }
  if (made.size() != expected.size()) {
    return absl::InternalError(
        absl::StrCat(made.size(), " outputs; ", expected.size(), " were expected"));
  }
  for (size_t i = 0; i < made.size(); ++i) {
    result.expected.emplace_back(made[i].id(), std::move(expected[i]));
  }
  for (const auto& [name, numbers] : model.variables()) {
    BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, numbers->Read());
    result.feeds.insert_or_assign(name, *array);
  }
  return result;
}

}  // namespace braid::conformance
