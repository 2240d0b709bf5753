// The order of an operator's legal signatures decides which of equally cheap ones is chosen, and
// with it the last bits of a job's numbers. signatures.txt holds the lists for the samples of
// operators, a line for each number of parts whose list is not that of the number before:
//   <operator> <number of the sample> <parts>: <signatures> [micro-batches <those over them>]
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/op_registry.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

std::string Text(const std::vector<SbpSignature>& signatures) {
  std::string text;
  for (const SbpSignature& signature : signatures) {
    absl::StrAppend(&text, text.empty() ? "" : " ", signature.ToString());
  }
  return text;
}

std::string LinesOf(const OpDef& def, int number) {
  const OpSample& sample = def.samples()[number];
  const auto outputs =
      def.InferTypes({.attrs = sample.attrs, .inputs = sample.inputs, .outputs = {}});
  if (!outputs.ok()) return outputs.status().ToString();
  const OpContext context = {.attrs = sample.attrs, .inputs = sample.inputs, .outputs = *outputs};
  std::string lines, last;
  for (const int64_t parts : {1, 2, 3, 4, 8}) {
    std::string list = Text(def.LegalSignatures(context, parts));
    const std::string micro_batches = Text(def.LegalMicroBatchSignatures(context, parts));
    if (micro_batches != list) absl::StrAppend(&list, " micro-batches ", micro_batches);
    if (list != last)
      absl::StrAppend(&lines, def.name(), " ", number, " ", parts, ": ", list, "\n");
    last = list;
  }
  return lines;
}

TEST(SignaturesTest, ListsKeepTheirOrder) {
  std::ifstream file(std::filesystem::path(__FILE__).replace_filename("signatures.txt"));
  std::map<std::string, std::string> known;  // lines by operator and sample
  for (std::string line; std::getline(file, line);) {
    known[line.substr(0, line.find(' ', line.find(' ') + 1))] += line + "\n";
  }
  ASSERT_GT(known.size(), 300);
  const OpRegistry registry = BuiltinOps();
  for (const auto& [name, lines] : known) {
    const size_t space = name.find(' ');
    const OpDef* def = registry.Find(name.substr(0, space));
    ASSERT_NE(def, nullptr) << name;
    const int number = std::stoi(name.substr(space));
    ASSERT_LT(number, static_cast<int>(def->samples().size())) << name;
    EXPECT_EQ(LinesOf(*def, number), lines);
  }
}

}  // namespace
}  // namespace braid
