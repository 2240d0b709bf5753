// Attributes of an operator's use: named values, fixed when the op is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dtype.h"

namespace braid {

class TextReader;

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType>;

// An ordered map with typed access. The text form is `axis=1 dims=[0, 2] exact=true scale=0.5
// dtype=f32 name="fc1"`; a double always shows a point or an exponent, so that Parse gives back the
// same types.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

  bool Has(std::string_view name) const;
  // CHECK-fails if absent or of another type: operators validate their attributes when recorded.
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Double(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  const std::vector<int64_t>& Ints(std::string_view name) const;
  DType Type(std::string_view name) const;

  void Set(std::string name, AttrValue value) { values_[std::move(name)] = std::move(value); }
  void Remove(std::string_view name);
  const std::map<std::string, AttrValue, std::less<>>& values() const { return values_; }

  std::string ToString() const;
  static absl::StatusOr<Attrs> Parse(std::string_view text);
  // Reads up to the end or a '}', which it leaves.
  static absl::StatusOr<Attrs> Read(TextReader& reader);

  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::map<std::string, AttrValue, std::less<>> values_;
};

}  // namespace braid
