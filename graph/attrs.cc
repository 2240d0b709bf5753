#include "graph/attrs.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "graph/text_reader.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

template <typename T>
const T& Get(const Attrs& attrs, std::string_view name) {
  auto found = attrs.values().find(name);
  CHECK(found != attrs.values().end()) << "no attribute " << name << " in " << attrs.ToString();
  const T* value = std::get_if<T>(&found->second);
  CHECK(value != nullptr) << "attribute " << name << " has another type in " << attrs.ToString();
  return *value;
}

std::string DoubleToString(double value) {
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  CHECK(error == std::errc());
  std::string text(buffer, end);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string ValueToString(const AttrValue& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(double v) const { return DoubleToString(v); }
    std::string operator()(const std::string& v) const { return Quote(v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return absl::StrCat("[", absl::StrJoin(v, ", "), "]");
    }
    std::string operator()(DType v) const { return std::string(braid::ToString(v)); }
  };
  return std::visit(Visitor(), value);
}

template <typename T>
std::optional<T> ParseNumber(const std::string& word) {
  T value;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

absl::StatusOr<AttrValue> ReadValue(TextReader& reader) {
  if (reader.Peek() == '"') return reader.Quoted();
  if (reader.Consume("[")) {
    std::vector<int64_t> values;
    while (!reader.Consume("]")) {
      if (!values.empty()) BRAID_RETURN_IF_ERROR(reader.Expect(","));
      BRAID_ASSIGN_OR_RETURN(values.emplace_back(), reader.Int());
    }
    return values;
  }
  BRAID_ASSIGN_OR_RETURN(std::string word, reader.Word());
  if (word == "true") return true;
  if (word == "false") return false;
  if (std::optional<int64_t> value = ParseNumber<int64_t>(word)) return *value;
  if (std::optional<DType> value = ParseDType(word)) return *value;
  if (std::optional<double> value = ParseNumber<double>(word)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is no bool, number or element type"));
}

}  // namespace

void Attrs::Remove(std::string_view name) {
  const auto found = values_.find(name);
  if (found != values_.end()) values_.erase(found);
}

bool Attrs::Has(std::string_view name) const { return values_.find(name) != values_.end(); }
bool Attrs::Bool(std::string_view name) const { return Get<bool>(*this, name); }
int64_t Attrs::Int(std::string_view name) const { return Get<int64_t>(*this, name); }
double Attrs::Double(std::string_view name) const { return Get<double>(*this, name); }
const std::string& Attrs::String(std::string_view name) const {
  return Get<std::string>(*this, name);
}
const std::vector<int64_t>& Attrs::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(*this, name);
}
DType Attrs::Type(std::string_view name) const { return Get<DType>(*this, name); }

std::string Attrs::ToString() const {
  std::string text;
  for (const auto& [name, value] : values_) {
    absl::StrAppend(&text, text.empty() ? "" : " ", name, "=", ValueToString(value));
  }
  return text;
}

absl::StatusOr<Attrs> Attrs::Parse(std::string_view text) {
  TextReader reader(text);
  BRAID_ASSIGN_OR_RETURN(Attrs attrs, Read(reader));
  BRAID_RETURN_IF_ERROR(reader.ExpectEnd());
  return attrs;
}

absl::StatusOr<Attrs> Attrs::Read(TextReader& reader) {
  Attrs attrs;
  while (!reader.AtEnd() && reader.Peek() != '}') {
    BRAID_ASSIGN_OR_RETURN(std::string name, reader.Word());
    BRAID_RETURN_IF_ERROR(reader.Expect("="));
    BRAID_ASSIGN_OR_RETURN(AttrValue value, ReadValue(reader));
    if (attrs.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' comes twice"));
    }
    attrs.Set(std::move(name), std::move(value));
  }
  return attrs;
}

}  // namespace braid
