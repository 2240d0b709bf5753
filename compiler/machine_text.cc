// A Machine as a text file: a fact a line.
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/machine.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

constexpr const char* kFlopRate = "flop/s";
constexpr const char* kByteRate = "B/s";
constexpr const char* kSeconds = "s";
constexpr const char* kForms =
    "one of these was expected: 'device KIND memory N B/s', 'device KIND f32|f64|bf16|f16 N "
    "flop/s', 'link process|host|network latency N s', 'link process|host|network bandwidth N B/s'";

// The shortest digits that are read back as the same number.
std::string Digits(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

// Where a fact is kept, and in what it is counted.
struct Fact {
  double* value = nullptr;
  std::string unit;
};

class MachineReader {
 public:
  explicit MachineReader(const std::string& file) : file_(file) {
    machine_.is_known = true;
    machine_.origin = file;
  }

  absl::StatusOr<Machine> Read(std::string_view text) {
    for (const auto line : absl::StrSplit(std::string(text), '\n')) {
      ++line_;
      const std::vector<std::string> words = absl::StrSplit(
          line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
      if (words.empty()) continue;
      BRAID_RETURN_IF_ERROR(ReadFact(words));
    }
    return std::move(machine_);
  }

 private:
  absl::Status ReadFact(const std::vector<std::string>& words) {
    const std::string stands = absl::StrJoin(words, " ");
    const std::optional<Fact> fact = words.size() == 5 ? FindFact(words) : std::nullopt;
    if (!fact.has_value()) return Wrong("'%s'; %s", stands, kForms);
    double value = 0;
    if (words[4] != fact->unit) {
      return Wrong("'%s' is in %s; %s was expected", stands, words[4], fact->unit);
    }
    if (!absl::SimpleAtod(words[3], &value) || !std::isfinite(value) || value <= 0) {
      return Wrong("'%s' gives '%s'; a number above 0 was expected", stands, words[3]);
    }
    const std::string name = absl::StrJoin(words.begin(), words.begin() + 3, " ");
    const auto [first, is_new] = lines_.try_emplace(name, line_);
    if (!is_new) {
      return Wrong("%s is %s here and %s in line %d; leave one of them out", name, words[3],
                   Digits(*fact->value), first->second);
    }
    *fact->value = value;
    return absl::OkStatus();
  }

  std::optional<Fact> FindFact(const std::vector<std::string>& words) {
    if (words[0] == "device") {
      if (words[2] == "memory") return Fact{&machine_.devices[words[1]].memory, kByteRate};
      const std::optional<DType> dtype = ParseDType(words[2]);
      if (!dtype.has_value() || !IsFloating(*dtype)) return std::nullopt;
      return Fact{&machine_.devices[words[1]].flops[*dtype], kFlopRate};
    }
    for (int i = 0; i < kNumLinkClasses && words[0] == "link"; ++i) {
      if (words[1] != LinkClassName(static_cast<LinkClass>(i))) continue;
      if (words[2] == "latency") return Fact{&machine_.links[i].latency, kSeconds};
      if (words[2] == "bandwidth") return Fact{&machine_.links[i].bandwidth, kByteRate};
    }
    return std::nullopt;
  }

  template <typename... Args>
  absl::Status Wrong(const absl::FormatSpec<Args...>& format, const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ":", line_, ": ", absl::StrFormat(format, args...)));
  }

  const std::string file_;
  int line_ = 0;
  std::map<std::string, int> lines_;  // of each fact
  Machine machine_;
};

}  // namespace

std::string Machine::ToString() const {
  std::string text;
  const auto add = [&text](std::string_view name, std::string_view fact, double value,
                           const char* unit) {
    absl::StrAppend(&text, std::string(name), " ", std::string(fact), " ", Digits(value), " ", unit,
                    "\n");
  };
  for (const auto& [kind, rates] : devices) {
    const std::string name = absl::StrCat("device ", kind);
    for (const auto& [dtype, flops] : rates.flops) {
      add(name, braid::ToString(dtype), flops, kFlopRate);
    }
    add(name, "memory", rates.memory, kByteRate);
  }
  for (int i = 0; i < kNumLinkClasses; ++i) {
    const std::string name =
        absl::StrCat("link ", std::string(LinkClassName(static_cast<LinkClass>(i))));
    add(name, "latency", links[i].latency, kSeconds);
    add(name, "bandwidth", links[i].bandwidth, kByteRate);
  }
  return text;
}

absl::StatusOr<Machine> Machine::Parse(std::string_view text, const std::string& file) {
  return MachineReader(file).Read(text);
}

}  // namespace braid::compiler
