#include "runtime/files/safetensors.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/files/strict_json.h"

namespace braid {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";

struct Name {
  DType dtype;
  std::string_view name;
};

constexpr Name kNames[] = {{DType::kF32, "F32"},
                           {DType::kF64, "F64"},
                           {DType::kBF16, "BF16"},
                           {DType::kF16, "F16"},
                           {DType::kI32, "I32"},
                           {DType::kI64, "I64"},
                           {DType::kU8, "U8"},
                           {DType::kBool, "BOOL"},
                           {DType::kI8, "I8"},
                           {DType::kI16, "I16"},
                           {DType::kU16, "U16"},
                           {DType::kU32, "U32"},
                           {DType::kU64, "U64"},
                           {DType::kF8E4M3Fn, "F8_E4M3"},
                           {DType::kF8E5M2, "F8_E5M2"},
                           {DType::kF8E8M0, "F8_E8M0"},
                           {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ"},
                           {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ"}};

std::string_view NameOf(DType dtype) {
  for (const Name& entry : kNames) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "";
}

bool IsUtf8(const std::string& text) {
  const Json parsed = Json::parse(ToLine(text), nullptr, /*allow_exceptions=*/false);
  return parsed.is_string() && parsed.get_ref<const std::string&>() == text;
}

// A tensor of the header with its byte range, relative to the end of the header.
struct Entry {
  StoredTensor tensor;
  int64_t begin = 0, end = 0;
};

// Turns one member of the header into an Entry; the error is the flaw alone.
absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json) {
  const auto flaw = [](const std::string& text) { return absl::InvalidArgumentError(text); };
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return flaw("expected exactly dtype, shape and data_offsets, found " +
                ToLine(json).substr(0, 200));
  }
  const Json& dtype = json["dtype"];
  const Json& shape = json["shape"];
  const Json& range = json["data_offsets"];
  Entry entry;
  entry.tensor.name = name;
  bool is_known = false;
  for (const Name& known : kNames) {
    if (dtype.is_string() && dtype.get_ref<const std::string&>() == known.name) {
      entry.tensor.dtype = known.dtype;
      is_known = true;
    }
  }
  if (!is_known) {
    return flaw("dtype is " + ToLine(dtype).substr(0, 50) +
                ", expected one of F32 F64 BF16 F16 I32 I64 U8 BOOL");
  }
  const auto is_size = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX};
  };
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_size)) {
    return flaw("shape is " + ToLine(shape).substr(0, 200) + ", expected a list of sizes");
  }
  if (!range.is_array() || range.size() != 2 || !is_size(range[0]) || !is_size(range[1]) ||
      range[0].get<int64_t>() > range[1].get<int64_t>()) {
    return flaw("data_offsets is " + ToLine(range).substr(0, 200) + ", expected [begin, end]");
  }
  entry.begin = range[0].get<int64_t>();
  entry.end = range[1].get<int64_t>();
  int64_t bytes = static_cast<int64_t>(SizeOf(entry.tensor.dtype));
  std::vector<int64_t> dims;
  bool fits = true;
  for (const Json& dim : shape) {
    dims.push_back(dim.get<int64_t>());
    fits = fits && !__builtin_mul_overflow(bytes, dims.back(), &bytes);
  }
  entry.tensor.shape = Shape(std::move(dims));
  if (!fits || bytes != entry.end - entry.begin) {
    return flaw(absl::StrFormat("shape %s of %s takes %s bytes, but data_offsets [%d, %d] span %d",
                                entry.tensor.shape.ToString(), ToString(entry.tensor.dtype),
                                fits ? absl::StrFormat("%d", bytes) : "over 2^63", entry.begin,
                                entry.end, entry.end - entry.begin));
  }
  return entry;
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(
    const std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  // Written by hand in the given order: readers want the entries in the order of their offsets.
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + ToLine(Json(metadata));
  std::set<std::string_view> names;
  SafetensorsLayout layout;
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == kMetadata || !IsUtf8(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "a tensor cannot be saved under the name %s: names are UTF-8 text and not __metadata__",
          ToLine(tensor.name)));
    }
    if (NameOf(tensor.dtype).empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor '%s' is %s, which safetensors does not have; save it as f8e4m3fn "
                          "or i8, which hold the same numbers",
                          tensor.name, ToString(tensor.dtype)));
    }
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("two tensors to be saved have the name '%s'", tensor.name));
    }
    const int64_t begin = end;
    end += tensor.num_bytes();
    layout.offsets.push_back(begin);
    json += absl::StrFormat("%s%s:{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%d,%d]}",
                            json.size() > 1 ? "," : "", ToLine(tensor.name), NameOf(tensor.dtype),
                            ToLine(Json(tensor.shape.dims())), begin, end);
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxHeader) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the header of %d tensors would take %d bytes; safetensors allows %d",
                        tensors.size(), json.size(), kMaxHeader));
  }
  for (int i = 0; i < 8; ++i) {
    layout.header.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  }
  layout.header += json;
  for (int64_t& offset : layout.offsets) offset += static_cast<int64_t>(layout.header.size());
  layout.file_bytes = end + static_cast<int64_t>(layout.header.size());
  return layout;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<StoredTensor> stored;
  for (const TensorBytes& entry : tensors) stored.push_back(entry.tensor);
  BRAID_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(stored, metadata));
  BRAID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  BRAID_RETURN_IF_ERROR(file.WriteAt(0, layout.header.data(), layout.header.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    BRAID_RETURN_IF_ERROR(file.WriteAt(layout.offsets[i], tensors[i].bytes,
                                       static_cast<size_t>(tensors[i].tensor.num_bytes())));
  }
  return file.Sync();
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  BRAID_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  const auto damaged = [&](const std::string& flaw) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no whole safetensors file: %s", path, flaw));
  };
  if (file.size() < 8) {
    return damaged(absl::StrFormat("it has %d bytes, its length prefix takes 8", file.size()));
  }
  uint8_t prefix[8];
  BRAID_RETURN_IF_ERROR(file.ReadAt(0, prefix, 8));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (length > uint64_t{kMaxHeader} || static_cast<int64_t>(length) > file.size() - 8) {
    return damaged(
        absl::StrFormat("its header claims %u bytes, the file has %d (and a header at "
                        "most %d)",
                        length, file.size(), kMaxHeader));
  }
  std::string text(static_cast<size_t>(length), '\0');
  BRAID_RETURN_IF_ERROR(file.ReadAt(8, text.data(), text.size()));
  BRAID_ASSIGN_OR_RETURN(const Json json, ParseStrictJson("the header of '" + path + "'", text));
  if (!json.is_object()) return damaged("its header is no JSON object");

  SafetensorsReader reader(std::move(file));
  std::vector<Entry> entries;
  for (const auto& [name, member] : json.items()) {
    if (name == kMetadata) {
      if (!member.is_object()) return damaged("__metadata__ is no object");
      for (const auto& [key, value] : member.items()) {
        if (!value.is_string()) return damaged("__metadata__ '" + key + "' is no string");
        reader.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<Entry> entry = ParseEntry(name, member);
    if (!entry.ok()) {
      return damaged(
          absl::StrFormat("tensor '%s': %s", name, std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  const int64_t data = 8 + static_cast<int64_t>(length);
  const int64_t available = reader.file_.size() - data;
  int64_t end = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.begin != end) {
      return damaged(absl::StrFormat("tensor '%s' begins at %d but the one before ends at %d: %s",
                                     entry.tensor.name, entry.begin, end,
                                     entry.begin < end ? "they overlap" : "there is a gap"));
    }
    end = entry.end;
    if (end > available) {
      return damaged(absl::StrFormat(
          "it is truncated: tensor '%s' ends at byte %d of the data, the file has %d",
          entry.tensor.name, end, available));
    }
  }
  if (end != available) {
    return damaged(
        absl::StrFormat("its tensors end at byte %d of the data, the file has %d", end, available));
  }
  for (Entry& entry : entries) {
    reader.index_[entry.tensor.name] = reader.tensors_.size();
    reader.offsets_.push_back(data + entry.begin);
    reader.tensors_.push_back(std::move(entry.tensor));
  }
  return reader;
}

const StoredTensor* SafetensorsReader::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<int64_t> SafetensorsReader::OffsetOf(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return absl::NotFoundError(absl::StrFormat("'%s' holds no tensor '%s'", path(), name));
  }
  return offsets_[found->second];
}

absl::Status SafetensorsReader::ReadBytes(std::string_view name, int64_t offset, void* out,
                                          size_t bytes) const {
  BRAID_ASSIGN_OR_RETURN(const int64_t start, OffsetOf(name));
  const int64_t total = Find(name)->num_bytes();
  if (offset < 0 || offset > total || bytes > static_cast<uint64_t>(total - offset)) {
    return absl::OutOfRangeError(
        absl::StrFormat("tensor '%s' of '%s' has %d bytes; %d from %d on were asked for", name,
                        path(), total, bytes, offset));
  }
  return file_.ReadAt(start + offset, out, bytes);
}

}  // namespace braid
