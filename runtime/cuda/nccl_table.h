// NCCL, as the module gives it: what cards do with those of other nodes. It is opened when it is
// needed, from the same places as the libraries of kernels. A part of the border (module_table.h).
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/base/collective_kind.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// What the first member of a communicator makes, and all others have to hear from it.
inline constexpr uint64_t kNcclWordBytes = 128;

// One member's part of a collective. `counts` and `receives` are those of a CollectiveSpec.
struct NcclCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  int64_t element_bytes = 4;
  int32_t reduction = 0;  // CombineNumber
  int32_t members = 0;
  int32_t rank = 0;
  int32_t root = 0;
  const int64_t* counts = nullptr;
  const int64_t* receives = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
};

// Functions return kDone, kNotReady (`state` then says when it is done) or what NCCL says, for
// `error_text`. One thread at a time for each communicator.
struct NcclTable {
  // Open for the rest of the process. Null: it cannot be, and the text says why.
  void* (*open)(const char* folders, char* text, uint64_t text_bytes);
  int32_t (*version)(const void* nccl);  // 22809 is 2.28.9
  const char* (*error_text)(const void* nccl, Error error);
  Error (*make_word)(const void* nccl, void* word);
  // All members call it. Here and below the thread uses the member's card (ModuleTable::use_card).
  Error (*join)(const void* nccl, const void* word, int32_t members, int32_t rank,
                void** communicator);
  Error (*state)(void* communicator);
  Error (*collect)(void* communicator, const NcclCall& call, void* stream);
  // What has not been done is not done any more; the communicator is gone.
  void (*end)(void* communicator);
};

NcclTable MakeNcclTable();

}  // namespace braid::cuda
