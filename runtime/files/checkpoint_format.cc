#include "runtime/files/checkpoint_format.h"

#include <charconv>
#include <optional>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/files/block_checksums.h"
#include "runtime/files/strict_json.h"

namespace braid {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxCheckpointName = 200;

absl::Status Damaged(const std::string& path, const std::string& flaw) {
  return absl::InvalidArgumentError(absl::StrFormat("'%s' is damaged: %s", path, flaw));
}

// The member `name` of `json` if it is an object and has one of that type; else nullptr.
const Json* Member(const Json& json, const char* name, Json::value_t type) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  if (found == json.end()) return nullptr;
  // A number that is not negative is parsed as unsigned; both are integers here.
  const bool is_integer = type == Json::value_t::number_integer && found->is_number_integer();
  return found->type() == type || is_integer ? &*found : nullptr;
}

std::optional<int64_t> Integer(const Json* json) {
  if (json == nullptr || !json->is_number_integer()) return std::nullopt;
  if (json->is_number_unsigned() && json->get<uint64_t>() > uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  return json->get<int64_t>();
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

absl::Status CheckFormat(const std::string& path, const Json& json) {
  const std::optional<int64_t> format =
      Integer(Member(json, "format", Json::value_t::number_integer));
  if (!format.has_value()) return Damaged(path, "it has no integer \"format\"");
  if (*format != kFormat) {
    return absl::UnimplementedError(absl::StrFormat(
        "'%s' has format %d; this version reads format %d", path, *format, kFormat));
  }
  return absl::OkStatus();
}

// Of all the digits; none if there is something else or too much.
std::optional<int64_t> Number(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_right = error == std::errc() && end == digits.data() + digits.size() && number >= 0;
  return is_right ? std::optional<int64_t>(number) : std::nullopt;
}

std::string Pretty(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string_view BaseOf(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;  // 0 if there are only digits
  const bool is_revision = digits > 1 && digits < name.size() && name[digits - 1] == '.';
  return is_revision ? name.substr(0, digits - 1) : name;
}

int64_t RevisionOf(std::string_view name) {
  const std::string_view base = BaseOf(name);
  return base == name ? 1 : Number(name.substr(base.size() + 1)).value_or(INT64_MAX);
}

std::optional<int64_t> StepOf(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  const std::string_view base = BaseOf(name);
  return base.starts_with(kStep) ? Number(base.substr(kStep.size())) : std::nullopt;
}

bool IsCheckpointName(std::string_view name) {
  const bool is_plain =
      !name.empty() && absl::ascii_isalnum(name[0]) && absl::c_all_of(name, [](char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
      });
  return is_plain && name.size() <= kMaxCheckpointName && BaseOf(name) == name &&
         !name.ends_with(kTemporarySuffix) && name != "latest" && name != "lock";
}

std::string PathIn(const std::string& folder, std::string_view name) {
  return absl::StrFormat("%s/%s", folder, name);
}

std::string FormatIndex(const CheckpointIndex& index) {
  return Pretty(
      {{"metadata", {{"total_size", index.total_size}}}, {"weight_map", index.weight_map}});
}

std::string FormatState(const CheckpointState& state) {
  return Pretty({{"format", kFormat}, {"step", state.step}, {"values", state.values}});
}

std::string FormatChecksums(const CheckpointChecksums& checksums) {
  Json files = Json::object();
  for (const auto& [name, file] : checksums) {
    Json blocks = Json::array();
    for (uint32_t crc : file.blocks) blocks.push_back(absl::StrFormat("%08x", crc));
    files[name] = {{"bytes", file.bytes}, {"blocks", std::move(blocks)}};
  }
  return Pretty({{"format", kFormat},
                 {"algorithm", "crc32c"},
                 {"block_bytes", kChecksumBlockBytes},
                 {"files", std::move(files)}});
}

absl::StatusOr<CheckpointIndex> ParseIndex(const std::string& path, std::string_view text) {
  BRAID_ASSIGN_OR_RETURN(const Json json, ParseStrictJson("'" + path + "'", text));
  CheckpointIndex index;
  const Json* metadata = Member(json, "metadata", Json::value_t::object);
  const std::optional<int64_t> total =
      metadata == nullptr ? std::nullopt
                          : Integer(Member(*metadata, "total_size", Json::value_t::number_integer));
  const Json* map = Member(json, "weight_map", Json::value_t::object);
  if (!total.has_value() || map == nullptr) {
    return Damaged(path, "expected metadata.total_size and weight_map");
  }
  index.total_size = *total;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !IsPlainName(file.get_ref<const std::string&>())) {
      return Damaged(path, "weight_map of '" + name + "' is " + ToLine(file).substr(0, 200) +
                               ", expected the name of a file beside it");
    }
    index.weight_map[name] = file.get<std::string>();
  }
  return index;
}

absl::StatusOr<CheckpointState> ParseState(const std::string& path, std::string_view text) {
  BRAID_ASSIGN_OR_RETURN(const Json json, ParseStrictJson("'" + path + "'", text));
  BRAID_RETURN_IF_ERROR(CheckFormat(path, json));
  CheckpointState state;
  const std::optional<int64_t> step = Integer(Member(json, "step", Json::value_t::number_integer));
  const Json* values = Member(json, "values", Json::value_t::object);
  if (!step.has_value() || *step < 0 || values == nullptr) {
    return Damaged(path, "expected step, an integer >= 0, and values");
  }
  state.step = *step;
  for (const auto& [name, json_value] : values->items()) {
    const std::optional<int64_t> value = Integer(&json_value);
    if (!value.has_value()) return Damaged(path, "value '" + name + "' is no integer");
    state.values[name] = *value;
  }
  return state;
}

absl::StatusOr<CheckpointChecksums> ParseChecksums(const std::string& path, std::string_view text) {
  BRAID_ASSIGN_OR_RETURN(const Json json, ParseStrictJson("'" + path + "'", text));
  BRAID_RETURN_IF_ERROR(CheckFormat(path, json));
  const Json* algorithm = Member(json, "algorithm", Json::value_t::string);
  const Json* block = Member(json, "block_bytes", Json::value_t::number_integer);
  if (algorithm == nullptr || *algorithm != "crc32c" || Integer(block) != kChecksumBlockBytes) {
    return Damaged(
        path, absl::StrFormat("expected algorithm crc32c and block_bytes %d", kChecksumBlockBytes));
  }
  const Json* files = Member(json, "files", Json::value_t::object);
  if (files == nullptr) return Damaged(path, "expected files");
  CheckpointChecksums checksums;
  for (const auto& [name, entry] : files->items()) {
    const std::optional<int64_t> bytes =
        Integer(Member(entry, "bytes", Json::value_t::number_integer));
    const Json* blocks = Member(entry, "blocks", Json::value_t::array);
    if (!IsPlainName(name) || !bytes.has_value() || *bytes < 0 || blocks == nullptr ||
        static_cast<int64_t>(blocks->size()) !=
            *bytes / kChecksumBlockBytes + (*bytes % kChecksumBlockBytes != 0)) {
      return Damaged(path, "the entry of file '" + name + "' is not bytes and their blocks");
    }
    FileChecksums& file = checksums[name];
    file.bytes = *bytes;
    for (const Json& crc : *blocks) {
      uint32_t value = 0;
      if (!crc.is_string()) return Damaged(path, "a checksum of '" + name + "' is no text");
      const std::string& hex = crc.get_ref<const std::string&>();
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
      if (hex.size() != 8 || error != std::errc() || end != hex.data() + 8) {
        return Damaged(path, "a checksum of '" + name + "' is not 8 hexadecimal digits");
      }
      file.blocks.push_back(value);
    }
  }
  return checksums;
}

}  // namespace braid
