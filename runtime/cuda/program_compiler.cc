#include "runtime/cuda/program_compiler.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/cuda/program_headers.h"

namespace braid::cuda {

std::string ProgramCompiler::Code(int major, int minor, const std::string& source) {
  MutexLock lock(mutex_);
  const auto [it, is_new] = codes_.try_emplace({major, minor, source});
  std::string& code = it->second;
  if (!is_new) return code;
  // Of another run all may differ.
  std::string key =
      absl::StrFormat("%d %d.%d\n", options_.table.version(options_.compiler), major, minor);
  for (const ProgramHeader& header : ProgramHeaders()) absl::StrAppend(&key, header.text);
  key += source;
  if (options_.cache.read) code = options_.cache.read(key);
  if (!code.empty()) return code;
  code = Compile(major, minor, source);
  if (!code.empty() && options_.cache.keep) options_.cache.keep(key, code);
  return code;
}

std::string ProgramCompiler::Compile(int major, int minor, const std::string& source) const {
  const CompilerTable& table = options_.table;
  std::vector<const char*> names, texts;
  for (const ProgramHeader& header : ProgramHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  const ProgramSource program = {.text = source.c_str(),
                                 .headers = static_cast<int32_t>(names.size()),
                                 .header_names = names.data(),
                                 .header_texts = texts.data()};
  MachineCode code;
  char words[2048] = {};
  if (table.compile(options_.compiler, major, minor, &program, &code, words, sizeof words) !=
      kDone) {
    LOG(WARNING) << "cuda: kernels that could be one run one by one, since the compiler says: "
                 << words;
    return "";
  }
  std::string bytes(static_cast<const char*>(code.bytes), code.size);
  table.free_code(&code);
  return bytes;
}

}  // namespace braid::cuda
