#include "api/tool/onnx.h"

#include <string>
#include <vector>

#include "api/tool/beside.h"

namespace braid {
namespace {

// The program's own words: the file, which comes first, is a flag.
int RunOnnx(const ToolArguments& arguments) {
  std::vector<std::string> words;
  for (const std::string& word : arguments.words) {
    const bool is_file = words.empty() && !word.starts_with('-');
    words.push_back(is_file ? "--model=" + word : word);
  }
  return BecomeProgram("onnx", "braid_onnx_run", words,
                       "build it: cmake --build --preset release --target braid_onnx_run");
}

}  // namespace

Subcommand OnnxSubcommand() {
  return {.name = "onnx",
          .summary = "shows what is in an ONNX file, runs it, compares and times it",
          .usage = "",
          .files = {},
          .run = RunOnnx};
}

}  // namespace braid
