// What nvrtc.cu is where NVRTC's header is missing: a compiler that is not opened.
#include <cstdio>

#include "runtime/cuda/program_table.h"

namespace braid::cuda {
namespace {

void* Open(const char* /*folders*/, char* text, uint64_t text_bytes) {
  std::snprintf(
      text, text_bytes,
      "NVRTC is not opened, since this module was built where its header nvrtc.h was not");
  return nullptr;
}

}  // namespace

CompilerTable MakeCompilerTable() { return {.open = Open}; }

}  // namespace braid::cuda
