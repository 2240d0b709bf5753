#include "api/onnx/model_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "runtime/base/status.h"
#include "runtime/files/file.h"

namespace braid::onnx {
namespace {

using google::protobuf::io::CodedInputStream;

class Bytes final : public google::protobuf::io::CopyingInputStream {
 public:
  explicit Bytes(const InputFile& file) : file_(file) {}

  int Read(void* buffer, int size) override {
    const int64_t count = std::min<int64_t>(size, file_.size() - at_);
    if (count <= 0) return 0;
    status_ = file_.ReadAt(at_, buffer, static_cast<size_t>(count));
    if (!status_.ok()) return -1;
    at_ += count;
    return static_cast<int>(count);
  }
  int Skip(int count) override {
    const int64_t skipped = std::clamp<int64_t>(file_.size() - at_, 0, count);
    at_ += skipped;
    return static_cast<int>(skipped);
  }
  const absl::Status& status() const { return status_; }

 private:
  const InputFile& file_;
  int64_t at_ = 0;
  absl::Status status_;
};

void AppendVarint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

// How protocol buffers are encoded: https://protobuf.dev/programming-guides/encoding/
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

constexpr uint32_t TagOf(int field) {
  return static_cast<uint32_t>(field) << 3 | static_cast<uint32_t>(kLengthDelimited);
}

// Goes through the file's messages as far as the weights; all else is parsed by protobuf. Functions
// return false where the file is damaged.
class Scanner {
 public:
  Scanner(CodedInputStream& in, ModelFile& model) : in_(in), model_(model) {}

  bool ReadModel() {
    return ForEachField([this](uint32_t tag) {
      if (tag != TagOf(ModelProto::kGraphFieldNumber)) return MergeField(tag, *model_.proto);
      model_.proto->mutable_graph();
      return Within([this] { return ReadGraph(); });
    });
  }

 private:
  bool ReadGraph() {
    GraphProto& graph = *model_.proto->mutable_graph();
    return ForEachField([&](uint32_t tag) {
      if (tag == TagOf(GraphProto::kNodeFieldNumber)) return ReadNode(graph);
      if (tag != TagOf(GraphProto::kInitializerFieldNumber)) return MergeField(tag, graph);
      const int number = graph.initializer_size();
      return ReadWeight(*graph.add_initializer(), model_.left_out, number);
    });
  }

  bool ReadNode(GraphProto& graph) {
    const int number = graph.node_size();
    NodeProto& node = *graph.add_node();
    std::string rest;
    const bool is_read = Within([&] {
      return ForEachField([&](uint32_t tag) {
        if (tag != TagOf(NodeProto::kAttributeFieldNumber)) return CopyField(tag, rest);
        const bool is_first = node.attribute_size() == 0;  // as a constant's only one
        return ReadAttribute(*node.add_attribute(), is_first, number);
      });
    });
    return is_read && node.MergeFromString(rest);
  }

  bool ReadAttribute(AttributeProto& attribute, bool is_first, int node) {
    std::string rest;
    const bool is_read = Within([&] {
      return ForEachField([&](uint32_t tag) {
        if (!is_first || tag != TagOf(AttributeProto::kTFieldNumber)) return CopyField(tag, rest);
        if (attribute.has_t()) return false;
        return ReadWeight(*attribute.mutable_t(), model_.left_out_of_nodes, node);
      });
    });
    return is_read && attribute.MergeFromString(rest);
  }

  bool ReadWeight(TensorProto& tensor, std::map<int, FileRange>& all_left_out, int number) {
    return Within([&] { return ReadTensor(tensor, all_left_out, number); });
  }

  bool ReadTensor(TensorProto& tensor, std::map<int, FileRange>& all_left_out, int number) {
    std::optional<FileRange> left_out;
    std::string rest;
    const bool is_read = ForEachField([&](uint32_t tag) {
      if (tag != TagOf(TensorProto::kRawDataFieldNumber)) return CopyField(tag, rest);
      uint32_t size = 0;
      if (left_out.has_value() || !in_.ReadVarint32(&size)) return false;
      if (size < kLeastLeftInFile) return CopyBytes(tag, size, rest);
      left_out = FileRange{.offset = in_.CurrentPosition(), .size = size};
      return HasBytes(size) && in_.Skip(static_cast<int>(size));
    });
    if (left_out.has_value()) all_left_out[number] = *left_out;
    return is_read && tensor.MergeFromString(rest) &&
           !(left_out.has_value() && tensor.has_raw_data());
  }

  // Until the message that the stream is in ends.
  template <class F>
  bool ForEachField(F f) {
    for (;;) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) return in_.ConsumedEntireMessage();
      if (!f(tag)) return false;
    }
  }
  template <class F>
  bool Within(F f) {
    uint32_t size = 0;
    if (!in_.ReadVarint32(&size) || !HasBytes(size)) return false;
    const auto limit = in_.PushLimit(static_cast<int>(size));
    const bool is_read = f() && in_.BytesUntilLimit() == 0;
    in_.PopLimit(limit);
    return is_read;
  }

  template <class Message>
  bool MergeField(uint32_t tag, Message& message) {
    std::string bytes;
    return CopyField(tag, bytes) && message.MergeFromString(bytes);
  }
  // As it stands in the file.
  bool CopyField(uint32_t tag, std::string& to) {
    uint64_t number = 0;
    uint32_t word = 0;
    switch (tag & 7) {
      case kVarint:
        if (!in_.ReadVarint64(&number)) return false;
        AppendVarint(tag, to);
        AppendVarint(number, to);
        return true;
      case kFixed64:
        AppendVarint(tag, to);
        return CopyPlain(8, to);
      case kFixed32:
        AppendVarint(tag, to);
        return CopyPlain(4, to);
      case kLengthDelimited:
        return in_.ReadVarint32(&word) && CopyBytes(tag, word, to);
      default:  // groups, which no version of ONNX has
        return false;
    }
  }
  bool CopyBytes(uint32_t tag, uint32_t size, std::string& to) {
    AppendVarint(tag, to);
    AppendVarint(size, to);
    return CopyPlain(size, to);
  }
  bool CopyPlain(uint32_t size, std::string& to) {
    if (!HasBytes(size)) return false;
    const size_t before = to.size();
    to.resize(before + size);
    return in_.ReadRaw(to.data() + before, static_cast<int>(size));
  }

  // Whether so many are left of the message that the stream is in.
  bool HasBytes(uint32_t size) const { return static_cast<int64_t>(size) <= in_.BytesUntilLimit(); }

  CodedInputStream& in_;
  ModelFile& model_;
};

absl::Status PutBackFrom(const InputFile& file, const FileRange& range, TensorProto& tensor) {
  std::string& bytes = *tensor.mutable_raw_data();
  bytes.resize(static_cast<size_t>(range.size));
  return file.ReadAt(range.offset, bytes.data(), bytes.size());
}

// What is left out of nodes that are no constants stands in their attributes after all.
absl::Status PutBackOthers(const InputFile& file, ModelFile& model) {
  for (auto at = model.left_out_of_nodes.begin(); at != model.left_out_of_nodes.end();) {
    NodeProto& node = *model.proto->mutable_graph()->mutable_node(at->first);
    if (IsTensorConstant(node)) {
      ++at;
      continue;
    }
    BRAID_RETURN_IF_ERROR(PutBackFrom(file, at->second, *node.mutable_attribute(0)->mutable_t()));
    at = model.left_out_of_nodes.erase(at);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsTensorConstant(const NodeProto& node) {
  return node.op_type() == "Constant" && node.domain().empty() && node.attribute_size() == 1 &&
         node.output_size() == 1 && node.attribute(0).name() == "value" &&
         node.attribute(0).has_t();
}

absl::Status PutBack(const std::string& path, const FileRange& range, TensorProto& tensor) {
  BRAID_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  return PutBackFrom(file, range, tensor);
}

absl::StatusOr<ModelFile> ReadModelFile(const std::string& path) {
  BRAID_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > std::numeric_limits<int>::max()) {
    return absl::OutOfRangeError(
        absl::StrCat("'", path, "' has ", file.size(),
                     " bytes; an ONNX file has at most 2 GiB. Let its exporter "
                     "write the weights to files of their own (external data)"));
  }
  ModelFile model;
  model.proto = std::make_unique<ModelProto>();
  Bytes bytes(file);
  google::protobuf::io::CopyingInputStreamAdaptor stream(&bytes);
  CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(file.size()));
  const bool is_read = Scanner(in, model).ReadModel();
  BRAID_RETURN_IF_ERROR(bytes.status());
  if (!is_read || !model.proto->has_graph()) {
    return absl::DataLossError(absl::StrCat("'", path, "' is no ONNX model, or is damaged"));
  }
  BRAID_RETURN_IF_ERROR(PutBackOthers(file, model));
  return model;
}

}  // namespace braid::onnx
