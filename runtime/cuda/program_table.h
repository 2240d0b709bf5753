// Programs that are compiled when a job is loaded, as the module gives it: NVRTC, which is opened
// when it is needed, from the same places as the libraries of kernels, and CUDA's ways to load and
// launch what it makes. A part of the border (module_table.h).
#pragma once

#include <cstdint>

#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// A text and the headers that it may include, by the names that it uses.
struct ProgramSource {
  const char* text = nullptr;
  int32_t headers = 0;
  const char* const* header_names = nullptr;
  const char* const* header_texts = nullptr;
};

struct MachineCode {
  const void* bytes = nullptr;
  uint64_t size = 0;
  void* owner = nullptr;  // for free_code
};

struct CompilerTable {
  // Null: not found, and `text` says where it was looked for. Once it is open it stays so.
  void* (*open)(const char* folders, char* text, uint64_t text_bytes);
  int32_t (*version)(const void* compiler);  // 13000 is 13.0
  // For cards of that compute capability. kLibraryFailed: `text` has what the compiler says.
  Error (*compile)(const void* compiler, int32_t major, int32_t minor, const ProgramSource* source,
                   MachineCode* code, char* text, uint64_t text_bytes);
  void (*free_code)(MachineCode* code);
};
CompilerTable MakeCompilerTable();

struct ProgramTable {
  Error (*load)(int32_t card, const void* code, void** program);
  void (*unload)(int32_t card, void* program);
  Error (*find)(void* program, const char* name, void** kernel);
  // `operands`: what the kernel's only parameter is. Of the thread that queues there.
  Error (*launch)(const Queue& queue, void* kernel, uint32_t blocks, uint32_t threads,
                  const void* operands);
};
}  // namespace braid::cuda
