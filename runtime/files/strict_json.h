// JSON as files of others bring it: refused, with the place, rather than guessed at. Included by
// the .cc files that know a file format; heavy.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

namespace braid {

inline constexpr int kMaxJsonDepth = 8;

// Refuses what is not JSON, keys that occur twice in an object, and nesting deeper than
// kMaxJsonDepth. `what` names the text in errors: "'model.safetensors' header".
inline absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view what,
                                                      std::string_view text) {
  // A handler that stops at the first flaw, so that hostile input cannot build a deep tree.
  struct Handler : nlohmann::json_sax<nlohmann::json> {
    std::string flaw;
    std::vector<std::set<std::string>> keys;  // of the open objects; an array's stays empty
    bool Open() {
      keys.emplace_back();
      if (static_cast<int>(keys.size()) <= kMaxJsonDepth) return true;
      flaw = absl::StrFormat("it is nested deeper than %d", kMaxJsonDepth);
      return false;
    }
    bool Close() {
      keys.pop_back();
      return true;
    }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return Open(); }
    bool end_object() override { return Close(); }
    bool start_array(std::size_t) override { return Open(); }
    bool end_array() override { return Close(); }
    bool key(string_t& name) override {
      if (keys.back().insert(name).second) return true;
      flaw = "the key \"" + name.substr(0, 200) + "\" occurs twice";
      return false;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception& error) override {
      flaw = absl::StrFormat("at byte %d: %s", position, error.what());
      return false;
    }
  };
  Handler handler;
  if (!nlohmann::json::sax_parse(text, &handler)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is damaged: it is not valid JSON: %s", what, handler.flaw));
  }
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// As one line. Text that is not UTF-8 is written with replacement characters.
inline std::string ToLine(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace braid
