#include "runtime/data/dataset_spec.h"

#include <charconv>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '/';
}

std::string Encode(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (IsPlain(c)) {
      out.push_back(c);
    } else {
      out += absl::StrFormat("%%%02X", static_cast<uint8_t>(c));
    }
  }
  return out;
}

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!IsPlain(text[i])) return std::nullopt;
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    uint8_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

template <typename T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void PutRange(const SampleRange& range, DatasetSpec& spec) {
  if (range.first != 0) spec.params["first"] = absl::StrCat(range.first);
  if (range.count != -1) spec.params["count"] = absl::StrCat(range.count);
}

// Seventeen digits bring a double back exactly.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

std::string DatasetSpec::Serialize() const {
  std::string out = Encode(kind);
  char separator = '?';
  for (const auto& [name, value] : params) {
    out += absl::StrFormat("%c%s=%s", separator, Encode(name), Encode(value));
    separator = '&';
  }
  return out;
}

absl::StatusOr<DatasetSpec> DatasetSpec::Parse(std::string_view text) {
  const auto error = [&](std::string_view part, std::string_view why) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "dataset '%s' is malformed at '%s': %s; expected kind?name=value&name=value", text, part,
        why));
  };
  DatasetSpec spec;
  const size_t question = text.find('?');
  const std::string_view kind = text.substr(0, question);
  std::optional<std::string> decoded_kind = Decode(kind);
  if (!decoded_kind.has_value()) return error(kind, "a character is not percent-encoded");
  if (decoded_kind->empty()) return error(kind, "the kind is empty");
  spec.kind = *std::move(decoded_kind);
  if (question == std::string_view::npos) return spec;
  std::string_view rest = text.substr(question + 1);
  while (true) {
    const size_t ampersand = rest.find('&');
    const std::string_view item = rest.substr(0, ampersand);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return error(item, "'=' is missing");
    std::optional<std::string> name = Decode(item.substr(0, equals));
    std::optional<std::string> value = Decode(item.substr(equals + 1));
    if (!name || !value) return error(item, "a character is not percent-encoded");
    if (name->empty()) return error(item, "the name is empty");
    if (!spec.params.emplace(*std::move(name), *std::move(value)).second) {
      return error(item, "the name occurs twice");
    }
    if (ampersand == std::string_view::npos) return spec;
    rest = rest.substr(ampersand + 1);
  }
}

DatasetSpec Mnist(std::string_view files, const SampleRange& range) {
  DatasetSpec spec{"mnist", {{"files", std::string(files)}}};
  PutRange(range, spec);
  return spec;
}

DatasetSpec DrawnDigits(const DigitsOptions& options) {
  return {"digits",
          {{"first", absl::StrCat(options.first)},
           {"count", absl::StrCat(options.count)},
           {"seed", absl::StrCat(options.seed)}}};
}

DatasetSpec DrawnPatterns(const PatternsOptions& options) {
  return {"patterns",
          {{"first", absl::StrCat(options.first)},
           {"count", absl::StrCat(options.count)},
           {"seed", absl::StrCat(options.seed)},
           {"channels", absl::StrCat(options.channels)},
           {"side", absl::StrCat(options.side)},
           {"classes", absl::StrCat(options.classes)}}};
}

DatasetSpec TextFile(std::string_view path, const TextOptions& options) {
  return {"text",
          {{"path", std::string(path)},
           {"context", absl::StrCat(options.context)},
           {"windows", options.windows == TextWindows::kStrided ? "strided" : "every"},
           {"alphabet", options.alphabet == TextAlphabet::kDistinct ? "distinct" : "bytes"},
           {"begin", Exact(options.begin)},
           {"end", Exact(options.end)}}};
}

DatasetSpec NpyFiles(const std::vector<std::pair<std::string, std::string>>& fields,
                     const SampleRange& range) {
  // Numbered, because the order of the fields is part of the value.
  DatasetSpec spec{"npy", {{"fields", absl::StrCat(fields.size())}}};
  for (size_t i = 0; i < fields.size(); ++i) {
    spec.params[absl::StrCat("name", i)] = fields[i].first;
    spec.params[absl::StrCat("path", i)] = fields[i].second;
  }
  PutRange(range, spec);
  return spec;
}

void SpecReader::Fail(const std::string& name, const std::string& value,
                      const std::string& expected) {
  status_.Update(absl::InvalidArgumentError(absl::StrFormat(
      "dataset '%s': %s is '%s', expected %s", spec_.Serialize(), name, value, expected)));
}

std::string SpecReader::TakeString(const std::string& name) {
  const auto found = left_.find(name);
  if (found == left_.end()) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrFormat("dataset '%s': %s is missing", spec_.Serialize(), name)));
    return "";
  }
  std::string value = std::move(found->second);
  left_.erase(found);
  return value;
}

int64_t SpecReader::TakeInteger(const std::string& name, int64_t missing) {
  if (!left_.contains(name)) return missing;
  const std::string text = TakeString(name);
  const std::optional<int64_t> value = ParseNumber<int64_t>(text);
  if (!value.has_value()) Fail(name, text, "an integer");
  return value.value_or(missing);
}

uint64_t SpecReader::TakeUnsigned(const std::string& name, uint64_t missing) {
  if (!left_.contains(name)) return missing;
  const std::string text = TakeString(name);
  const std::optional<uint64_t> value = ParseNumber<uint64_t>(text);
  if (!value.has_value()) Fail(name, text, "an integer from 0 to 2^64 - 1");
  return value.value_or(missing);
}

double SpecReader::TakeNumber(const std::string& name, double missing) {
  if (!left_.contains(name)) return missing;
  const std::string text = TakeString(name);
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value.has_value()) Fail(name, text, "a number");
  return value.value_or(missing);
}

int SpecReader::TakeChoice(const std::string& name, const std::vector<std::string>& choices) {
  if (!left_.contains(name)) return 0;
  const std::string text = TakeString(name);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) return static_cast<int>(i);
  }
  Fail(name, text, "one of " + absl::StrJoin(choices, ", "));
  return 0;
}

SampleRange SpecReader::TakeRange() {
  SampleRange range;
  range.first = TakeInteger("first", 0);
  range.count = TakeInteger("count", -1);
  if (range.first < 0) Fail("first", absl::StrCat(range.first), "0 or more");
  if (range.count < -1) Fail("count", absl::StrCat(range.count), "0 or more, or -1 for all");
  return range;
}

SampleRange SpecReader::TakeDrawnRange(const SampleRange& missing, int64_t limit) {
  SampleRange range;
  range.first = TakeInteger("first", missing.first);
  range.count = TakeInteger("count", missing.count);
  if (range.count < 1 || range.count > limit) {
    Fail("count", absl::StrCat(range.count), absl::StrCat("1 to ", limit));
  }
  const int64_t last = std::numeric_limits<int64_t>::max() - limit;
  if (range.first < 0 || range.first > last) {
    Fail("first", absl::StrCat(range.first), absl::StrCat("0 to ", last));
  }
  return range;
}

absl::Status SpecReader::Finish() {
  if (!left_.empty()) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrFormat("dataset '%s': '%s' does not have a parameter '%s'", spec_.Serialize(),
                        spec_.kind, left_.begin()->first)));
  }
  return status_;
}

}  // namespace braid
