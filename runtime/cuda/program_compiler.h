// Machine code for texts, by NVRTC; what was compiled once is kept.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/program_table.h"

namespace braid::cuda {

// Shared by the cards of a process: what several ask for is compiled once.
class ProgramCompiler {
 public:
  struct Options {
    CompilerTable table = {};
    const void* compiler = nullptr;  // what the table's `open` gave; not null
    CodeCache cache = {};
  };
  explicit ProgramCompiler(Options options) : options_(std::move(options)) {}

  // For cards of that compute capability, of a text that may include fused_prelude.h. "" if it does
  // not compile, which is logged. Any thread.
  std::string Code(int major, int minor, const std::string& source);

 private:
  std::string Compile(int major, int minor, const std::string& source) const;

  const Options options_;
  Mutex mutex_;
  // By capability and text; "": it does not compile.
  std::map<std::tuple<int, int, std::string>, std::string> codes_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid::cuda
