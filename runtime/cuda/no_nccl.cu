// What nccl.cu is where NCCL's header is missing: a library that is not opened.
#include <cstdio>

#include "runtime/cuda/module_table.h"

namespace braid::cuda {
namespace {

void* Open(const char* /*folders*/, char* text, uint64_t text_bytes) {
  std::snprintf(text, text_bytes,
                "NCCL is not opened, since this module was built where its header nccl.h was not");
  return nullptr;
}

}  // namespace

NcclTable MakeNcclTable() { return {.open = Open}; }

}  // namespace braid::cuda
