// Reads the code of the source tree: how long functions are, which constants are defined twice, and
// where operators are called by their names.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_registry.h"
#include "tests/source_tree.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using house::Function;
using house::Source;

class HouseCode : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    sources() = house::ReadSources(
        Root(), {"graph", "compiler", "actor", "comm", "runtime", "api", "examples", "tests"});
  }
  static fs::path Root() { return BRAID_SOURCE_DIR; }
  static std::vector<Source>& sources() {
    static std::vector<Source> sources;
    return sources;
  }
  // With literals, without comments.
  static std::vector<std::string> CodeOf(const Source& source) {
    return house::Lines(
        house::StripComments(house::ReadFile(Root() / source.path), house::Literals::kKeep));
  }
};

TEST(HouseReader, FindsFunctions) {
  const std::vector<Function> functions = house::FunctionsOf(house::Lines(R"(namespace a {
int F(int x) {
  return x;
}
struct S {
  S()
      : x{1} {
    x = 2;
    y = 3;
  }
};
const int kList[] = {
    1,
};
std::vector<int> Cases() {
  return {
      1,
  };
}
}  // namespace a)"));
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].line, 1u);
  EXPECT_EQ(functions[0].length, 3u);
  EXPECT_FALSE(functions[0].is_data);
  EXPECT_EQ(functions[1].length, 5u);
  EXPECT_TRUE(functions[1].is_data);
}

TEST_F(HouseCode, FunctionsAreReadAtOneGlance) {
  constexpr size_t kTooLong = 80;
  size_t count = 0;
  for (const Source& source : sources()) {
    for (const Function& function : house::FunctionsOf(source.code)) {
      ++count;
      const bool is_table = function.is_data && source.IsIn("tests");
      EXPECT_TRUE(function.length <= kTooLong || is_table)
          << source.At(function.line) << function.length << " lines: split" << function.head;
    }
  }
  EXPECT_GT(count, 2000u) << "the reader sees no functions";
}

// A number or a text, maybe of a unit: `64`, `3 * kSecond`, `"cpu"`.
TEST_F(HouseCode, ConstantsAreDefinedOnce) {
  static const std::regex kConstant(
      R"re(\bconst(expr|init)?\b.*\b(k[A-Z]\w*)(\[\])?\s*=\s*)re"
      R"re(((-?[0-9][0-9a-zA-Z_.']*|"[^"]*"|int64_t\{[0-9]+\}|size_t\{[0-9]+\}))re"
      R"re((\s*(\*|<<)\s*(k[A-Z]\w*|[0-9]+))*)\s*[;,])re");
  std::map<std::pair<std::string, std::string>, std::set<std::string>> places;
  for (const Source& source : sources()) {
    if (source.IsIn("tests")) continue;
    for (const std::string& line : CodeOf(source)) {
      std::smatch match;
      if (std::regex_search(line, match, kConstant)) {
        places[{match[2], match[4]}].insert(source.path);
      }
    }
  }
  EXPECT_GT(places.size(), 100u) << "the reader sees no constants";
  for (const auto& [constant, files] : places) {
    std::string list;
    for (const std::string& file : files) list += "\n  " + file;
    EXPECT_EQ(files.size(), 1u) << constant.first << " = " << constant.second << " is in" << list;
  }
}

// What a pass wants to know of an operator is a row of a table of patterns, or stands in the
// operator's definition, which api and graph ask as well.
TEST_F(HouseCode, OperatorsAreNotAskedForByName) {
  static const std::regex kComparison(R"re([=!]=\s*"(\w+)"|"(\w+)"\s*[=!]=)re");
  static const std::regex kComparisonOfType(R"re(\btype\s*[=!]=\s*"(\w+)")re");
  const OpRegistry operators = BuiltinOps();
  size_t comparisons = 0;
  for (const Source& source : sources()) {
    const bool is_of_passes = source.IsIn("compiler");
    if (!is_of_passes && !source.IsIn("api") && !source.IsIn("graph")) continue;
    const std::regex& comparison = is_of_passes ? kComparison : kComparisonOfType;
    const std::vector<std::string> code = CodeOf(source);
    for (size_t i = 0; i < code.size(); ++i) {
      // Rules of boxing have names of their own, some of which operators have too.
      if (code[i].find(".rule ==") != std::string::npos) continue;
      for (std::sregex_iterator it(code[i].begin(), code[i].end(), comparison), end; it != end;
           ++it) {
        const std::string name = (*it)[1].matched ? (*it)[1] : (*it)[2];
        ++comparisons;
        EXPECT_EQ(operators.Find(name), nullptr) << source.At(i) << source.lines[i];
      }
    }
  }
  EXPECT_GT(comparisons, 5u) << "the reader sees no comparisons";
}

}  // namespace
}  // namespace braid
