// How kernels of a CUDA device are started: what crosses the border between the sources that know
// plans and those that a CUDA compiler reads. Nothing here needs more than the language.
#pragma once

#include <cstdint>

namespace braid::cuda {

// What messages call an index.
enum class IndexName : int32_t { kIndex, kLabel, kPosition };

// Where a kernel notes that an operand has a wrong index, once, in memory of the host that the
// device writes to, too.
struct IndexNote {
  int32_t is_set;    // by the device, last
  const void* work;  // Queue::work of the launch
  IndexName name;
  int64_t value;      // that it has
  int64_t position;   // of the value, in this device's part of the operand
  int64_t low, high;  // the value should be in [low, high)
};

// Where a launch goes. Made by the device's streams.
struct Queue {
  void* stream = nullptr;       // cudaStream_t
  IndexNote* note = nullptr;    // null: indices are not checked
  int32_t* is_noted = nullptr;  // memory of the device: whoever makes it 1 writes the note
  const void* work = nullptr;   // what the launch belongs to
  // Memory of the device: the step of what runs in this stream. Null: no kernel reads it there.
  int64_t* step = nullptr;
  int32_t multiprocessors = 132;
  // Products of f32 may round their operands to TF32, for the matrix units: --precision=tf32.
  bool rounds_to_tf32 = false;
  // Convolutions of f32 may sum by Winograd's algorithm: --winograd.
  bool sums_by_winograd = false;
  void* libraries = nullptr;  // of the device: module's own
};

// A cudaError_t, or one of these. Launch functions return it.
using Error = int;
inline constexpr Error kDone = 0;
inline constexpr Error kNoSuchType = -1;  // a dtype that the family has no kernel for
inline constexpr Error kLibraryFailed = -2;
inline constexpr Error kNotReady = -100;  // what is asked for is not done yet

inline constexpr int kThreads = 256;  // of a block, where nothing speaks for another number

// Blocks for `n` threads' work, in blocks of `threads`: enough to fill the card, then they loop.
inline unsigned BlocksFor(const Queue& queue, int64_t n, int threads = kThreads) {
  const int64_t most = int64_t{16} * queue.multiprocessors;
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks < most ? blocks : most));
}

inline constexpr int kMaxRank = 8;
inline constexpr int kMaxOperands = 4;

// A walk over elements in row-major order, with a stride for each operand; dimensions that are one
// are merged. Strides are in elements, 0 where an operand is repeated.
struct Walk {
  int64_t elements = 1;
  int32_t rank = 0;
  int64_t size[kMaxRank] = {};
  int64_t stride[kMaxOperands][kMaxRank] = {};
};

}  // namespace braid::cuda
