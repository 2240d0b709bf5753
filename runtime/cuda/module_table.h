// The border between Braid and its module for CUDA: one function of the module, BraidCudaModule,
// gives this table. Only numbers, pointers and plain structs cross it, so that neither side needs
// the other's libraries.
#pragma once

#include <cstdint>

#include "runtime/cuda/nccl_table.h"
#include "runtime/cuda/program_table.h"
#include "runtime/kernels/cuda/kernel_table.h"

namespace braid::cuda {

struct CardInfo {
  char name[256];
  int32_t major, minor;  // compute capability
  int32_t multiprocessors;
  uint64_t bytes;  // of its memory
  uint8_t id[16];  // the same from every process, and no other card's
};

// Memory of a card that grows and never moves.
struct Range {
  int32_t card = 0;
  void* address = nullptr;
  uint64_t reserved = 0;  // bytes of address space
  uint64_t usable = 0;    // of them, with memory behind
  uint64_t others = 0;    // bit c: card c's kernels use it, too
};

// Functions return kDone or the error that CUDA says. Cards are CUDA's numbers. Of any thread;
// those that take a stream, of the thread that queues there.
struct ModuleTable {
  const char* fingerprint;  // of the build that the module belongs to

  // 0 where there is no driver or no card; then `error` says what CUDA says.
  int32_t (*count_cards)(Error* error);
  Error (*versions)(int32_t* driver, int32_t* runtime);  // 13000 is 13.0
  Error (*describe)(int32_t card, CardInfo* info);
  Error (*free_memory)(int32_t card, uint64_t* bytes);
  const char* (*error_name)(Error error);  // "cudaErrorIllegalAddress"
  const char* (*error_text)(Error error);

  Error (*allocate)(int32_t card, uint64_t bytes, void** address);
  void (*free)(int32_t card, void* address);
  // Address space for the most that the range may have.
  Error (*reserve)(int32_t card, uint64_t most_bytes, Range* range);
  Error (*extend)(Range* range, uint64_t bytes);
  void (*release)(Range* range);
  // Makes memory of the host one that cards copy from and to by themselves, and see.
  Error (*pin)(void* address, uint64_t bytes);
  void (*unpin)(void* address);
  // A card's kernels may use the memory of another one from now on, but for ranges, which say it
  // themselves.
  Error (*allow_peer)(int32_t card, int32_t other);
  Error (*share)(Range* range, int32_t other);

  Error (*make_stream)(int32_t card, void** stream);
  void (*destroy_stream)(int32_t card, void* stream);
  Error (*make_event)(int32_t card, void** event);
  void (*destroy_event)(int32_t card, void* event);
  Error (*record)(int32_t card, void* event, void* stream);
  Error (*wait)(int32_t card, void* stream, void* event);
  Error (*copy)(int32_t card, void* to, const void* from, uint64_t bytes, void* stream);
  // Whose memory this is.
  Error (*card_of)(const void* address, int32_t* card);
  // Between the memory of two cards, in a stream of the first, also where kernels cannot do it.
  Error (*copy_across)(int32_t card, void* to, int32_t other, const void* from, uint64_t bytes,
                       void* stream);
  Error (*clear)(int32_t card, void* to, uint64_t bytes, void* stream);
  // Calls function(argument) on a thread of CUDA's when the stream has come to it; never after an
  // error of the device.
  Error (*call_host)(int32_t card, void* stream, void (*function)(void*), void* argument);
  // What this thread queues in the stream from now on is captured, until end_capture, which makes a
  // graph of it; null after an error.
  Error (*begin_capture)(int32_t card, void* stream);
  Error (*end_capture)(int32_t card, void* stream, void** graph);
  Error (*launch_graph)(int32_t card, void* graph, void* stream);
  void (*destroy_graph)(int32_t card, void* graph);
  // kDone when all is done, kNotReady, or the error that the device met.
  Error (*stream_state)(int32_t card, void* stream);
  // Kernels are launched by the thread on this card from now on.
  Error (*use_card)(int32_t card);

  // What kernels open when they need it (Queue::libraries); `folders`: where to look first.
  void* (*open_libraries)(const char* folders);
  const char* (*missing_libraries)(const void* libraries);
  void (*close_libraries)(void* libraries);

  KernelTable kernels;
  NcclTable nccl;
  CompilerTable compiler;
  ProgramTable programs;
};

}  // namespace braid::cuda

// What a module exports.
extern "C" const braid::cuda::ModuleTable* BraidCudaModule();
