// Kernels of what moves elements: transpose, slice, pad and the like. Elements are moved as words,
// which are as wide as sizes, strides and addresses allow.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/rearrange.h"

namespace braid::cuda {
namespace {

struct alignas(16) Word16 {
  uint64_t halves[2];
};

template <class Word>
struct Filled {
  __device__ static Word Of(uint64_t bits) { return static_cast<Word>(bits); }
};
template <>
struct Filled<Word16> {
  __device__ static Word16 Of(uint64_t bits) { return {{bits, bits}}; }
};

// f(Word()) for words of `bytes`.
template <class F>
Error VisitWords(int64_t bytes, F f) {
  return bytes == 16 ? f(Word16()) : VisitBytes(bytes, f);
}

// Eight bytes of elements side by side.
uint64_t Repeated(uint64_t bits, int64_t element_bytes) {
  if (element_bytes < 8) bits &= (uint64_t{1} << (8 * element_bytes)) - 1;
  for (int64_t bytes = element_bytes; bytes < 8; bytes *= 2) bits |= bits << (8 * bytes);
  return bits;
}

// The widest words, at least elements, that all of `places` (bytes: sizes, strides, addresses) are
// multiples of.
class Width {
 public:
  explicit Width(int64_t element_bytes) : element_(element_bytes) {}
  void Divides(int64_t bytes) {
    while (word_ > element_ && bytes % word_ != 0) word_ /= 2;
  }
  void Divides(const void* address) {
    Divides(static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % 16));
  }
  int64_t word() const { return word_; }

 private:
  int64_t element_, word_ = 16;
};

// ---- fill ---------------------------------------------------------------------------------------

template <class Word>
__global__ void __launch_bounds__(kThreads) FillWords(Word* to, int64_t words, uint64_t bits) {
  const Word word = Filled<Word>::Of(bits);
  for (int64_t i = FirstIndex(); i < words; i += IndexStep()) to[i] = word;
}

Error Fill(const Queue& queue, const FillLaunch& launch) {
  if (launch.elements == 0) return kDone;
  const int64_t bytes = launch.elements * launch.element_bytes;
  Width width(launch.element_bytes);
  width.Divides(bytes);
  width.Divides(launch.to);
  return VisitWords(width.word(), [&](auto word) {
    using Word = decltype(word);
    const auto words = bytes / static_cast<int64_t>(sizeof(Word));
    return Launch(queue, BlocksFor(queue, words), kThreads, FillWords<Word>,
                  static_cast<Word*>(launch.to), words,
                  Repeated(launch.bits, launch.element_bytes));
  });
}

// ---- boxes --------------------------------------------------------------------------------------

template <class Word>
__global__ void __launch_bounds__(kThreads) CopyWords(Word* to, const Word* from, Walk walk) {
  if (walk.rank == 1) {
    const int64_t to_stride = walk.stride[0][0], from_stride = walk.stride[1][0];
    for (int64_t i = FirstIndex(); i < walk.elements; i += IndexStep()) {
      to[i * to_stride] = from[i * from_stride];
    }
    return;
  }
  for (int64_t i = FirstIndex(); i < walk.elements; i += IndexStep()) {
    const Offsets<2> offsets = OffsetsOf<2>(walk, i);
    to[offsets.at[0]] = from[offsets.at[1]];
  }
}

// A transpose. Neighbours in the source are neighbours of a column in the target: the threads read
// along the former and write along the latter, tile by tile.
constexpr int kTile = 32;
struct Tiles {
  int64_t rows, columns;        // of the target
  int64_t row_to, column_from;  // strides; row_from and column_to are 1
  int64_t row_tiles, column_tiles;
  Walk outer;
};

template <class Word>
__global__ void __launch_bounds__(kThreads) CopyTiles(Word* to, const Word* from, Tiles tiles) {
  __shared__ Word tile[kTile][kTile + 1];
  const int lane = static_cast<int>(threadIdx.x % kTile);
  const int first = static_cast<int>(threadIdx.x / kTile), step = kThreads / kTile;
  const int64_t count = tiles.row_tiles * tiles.column_tiles * tiles.outer.elements;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int64_t row = i % tiles.row_tiles * kTile;
    const int64_t column = i / tiles.row_tiles % tiles.column_tiles * kTile;
    const Offsets<2> outer = OffsetsOf<2>(tiles.outer, i / tiles.row_tiles / tiles.column_tiles);
    for (int c = first; c < kTile; c += step) {
      if (row + lane < tiles.rows && column + c < tiles.columns) {
        tile[c][lane] = from[outer.at[1] + row + lane + (column + c) * tiles.column_from];
      }
    }
    __syncthreads();
    for (int r = first; r < kTile; r += step) {
      if (row + r < tiles.rows && column + lane < tiles.columns) {
        to[outer.at[0] + (row + r) * tiles.row_to + column + lane] = tile[lane][r];
      }
    }
    __syncthreads();
  }
}

// The dimension that is contiguous in the source of a box whose last one is contiguous in the
// target only; -1 if there is none or tiles would be nearly empty.
int TransposedDim(const Walk& walk) {
  constexpr int64_t kLeast = kTile / 2;
  const int last = walk.rank - 1;
  if (last < 1 || walk.stride[0][last] != 1 || walk.stride[1][last] == 1) return -1;
  if (walk.size[last] < kLeast || walk.stride[1][last] == 0) return -1;
  for (int d = 0; d < last; ++d) {
    if (walk.stride[1][d] == 1 && walk.size[d] >= kLeast) return d;
  }
  return -1;
}

template <class Word>
Error LaunchTiles(const Queue& queue, Word* to, const Word* from, const Walk& walk, int dim) {
  const int last = walk.rank - 1;
  Tiles tiles = {.rows = walk.size[dim],
                 .columns = walk.size[last],
                 .row_to = walk.stride[0][dim],
                 .column_from = walk.stride[1][last]};
  tiles.row_tiles = (tiles.rows + kTile - 1) / kTile;
  tiles.column_tiles = (tiles.columns + kTile - 1) / kTile;
  for (int d = 0; d < last; ++d) {
    if (d == dim) continue;
    const int at = tiles.outer.rank++;
    tiles.outer.elements *= walk.size[d];
    tiles.outer.size[at] = walk.size[d];
    for (int k = 0; k < 2; ++k) tiles.outer.stride[k][at] = walk.stride[k][d];
  }
  const int64_t count = tiles.row_tiles * tiles.column_tiles * tiles.outer.elements;
  return LaunchBlocks(queue, BlocksFor(queue, count * kThreads), kThreads, CopyTiles<Word>, to,
                      from, tiles);
}

Error Copy(const Queue& queue, const CopyLaunch& launch) {
  if (launch.walk.elements == 0) return kDone;
  const int64_t element = launch.element_bytes;
  Walk walk = launch.walk;
  auto* const to = static_cast<char*>(launch.to) + launch.to_offset * element;
  const auto* const from = static_cast<const char*>(launch.from) + launch.from_offset * element;
  if (const int dim = TransposedDim(walk); dim >= 0) {
    return VisitBytes(element, [&](auto word) {
      using Word = decltype(word);
      return LaunchTiles(queue, reinterpret_cast<Word*>(to), reinterpret_cast<const Word*>(from),
                         walk, dim);
    });
  }
  int64_t width = element;
  const int last = walk.rank - 1;
  if (last >= 0 && walk.stride[0][last] == 1 && walk.stride[1][last] == 1) {
    Width widest(element);
    widest.Divides(to);
    widest.Divides(from);
    widest.Divides(walk.size[last] * element);
    for (int d = 0; d < last; ++d) {
      for (int k = 0; k < 2; ++k) widest.Divides(walk.stride[k][d] * element);
    }
    width = widest.word();
    const int64_t elements = width / element;
    walk.elements /= elements;
    walk.size[last] /= elements;
    for (int d = 0; d < last; ++d) {
      for (int k = 0; k < 2; ++k) walk.stride[k][d] /= elements;
    }
  }
  return VisitWords(width, [&](auto word) {
    using Word = decltype(word);
    return Launch(queue, BlocksFor(queue, walk.elements), kThreads, CopyWords<Word>,
                  reinterpret_cast<Word*>(to), reinterpret_cast<const Word*>(from), walk);
  });
}

// ---- pad ----------------------------------------------------------------------------------------

__device__ __forceinline__ int64_t Modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

// Which local element of the input the local element `i` of the output is, -1 if none here.
__device__ __forceinline__ int64_t SourceOf(const PadAxis& axis, int64_t i) {
  if (axis.mode == PadAxis::Mode::kSame) return i;
  int64_t at = i + axis.out_offset - axis.before;
  if (axis.n == 0) return -1;
  if (axis.mode == PadAxis::Mode::kConstant) {
    if (at < 0 || at % axis.step != 0) return -1;
    at /= axis.step;
    if (at >= axis.n) return -1;
  } else if (axis.mode == PadAxis::Mode::kEdge) {
    at = at < 0 ? 0 : (at < axis.n ? at : axis.n - 1);
  } else if (axis.mode == PadAxis::Mode::kReflect) {
    const int64_t period = 2 * (axis.n - 1);
    at = Modulo(at, period);
    at = at < axis.n ? at : period - at;
  } else {
    at = Modulo(at, axis.n);
  }
  at -= axis.in_offset;
  return at < axis.in_size ? (at < 0 ? -1 : at) : -1;
}

template <class Word>
__global__ void __launch_bounds__(kThreads) PadWords(PadLaunch launch, int64_t words) {
  auto* const to = static_cast<Word*>(launch.to);
  const auto* const from = static_cast<const Word*>(launch.from);
  const Word background = Filled<Word>::Of(launch.bits);
  for (int64_t i = FirstIndex(); i < words; i += IndexStep()) {
    int64_t rest = i, place = 0, stride = 1;
    bool is_inside = true;
    for (int d = launch.rank - 1; d >= 0; --d) {
      const PadAxis& axis = launch.axes[d];
      const int64_t at = SourceOf(axis, rest % axis.out_size);
      rest /= axis.out_size;
      is_inside = is_inside && at >= 0;
      place += at * stride;
      stride *= axis.in_size;
    }
    to[i] = is_inside ? from[place] : background;
  }
}

Error Pad(const Queue& queue, const PadLaunch& launch) {
  PadLaunch wide = launch;
  int64_t words = 1;
  for (int d = 0; d < launch.rank; ++d) words *= launch.axes[d].out_size;
  if (words == 0) return kDone;
  Width width(launch.element_bytes);
  width.Divides(launch.to);
  width.Divides(launch.from);
  const int last = launch.rank - 1;
  if (last < 0 || launch.axes[last].mode != PadAxis::Mode::kSame) {
    width.Divides(launch.element_bytes);
  } else {
    PadAxis& axis = wide.axes[last];
    width.Divides(axis.out_size * launch.element_bytes);
    const int64_t elements = width.word() / launch.element_bytes;
    axis.in_size = axis.out_size = axis.out_size / elements;
    words /= elements;
  }
  wide.bits = Repeated(launch.bits, launch.element_bytes);
  return VisitWords(width.word(), [&](auto word) {
    return Launch(queue, BlocksFor(queue, words), kThreads, PadWords<decltype(word)>, wide, words);
  });
}

// ---- the gradient of pad ------------------------------------------------------------------------

// Local elements of an axis: first + k * step, k in [0, count); and another such list.
struct Targets {
  int64_t step = 1;
  int64_t first[2] = {}, count[2] = {};
};

// Those of the whole that are congruent to `at` modulo `step`.
__device__ __forceinline__ void SetPeriodic(const PadAxis& axis, int64_t at, int k, Targets& to) {
  to.first[k] = Modulo(at - axis.out_offset, to.step);
  to.count[k] = to.first[k] < axis.out_size ? (axis.out_size - 1 - to.first[k]) / to.step + 1 : 0;
}

// Where pad put the local element `i` of its input.
__device__ __forceinline__ Targets TargetsOf(const PadAxis& axis, int64_t i) {
  Targets to;
  if (axis.mode == PadAxis::Mode::kSame) {
    to.first[0] = i;
    to.count[0] = 1;
    return to;
  }
  const int64_t at = i + axis.in_offset;
  if (axis.mode == PadAxis::Mode::kReflect) {
    to.step = 2 * (axis.n - 1);
    SetPeriodic(axis, axis.before + at, 0, to);
    if (at != 0 && at != axis.n - 1) SetPeriodic(axis, axis.before - at, 1, to);
  } else if (axis.mode == PadAxis::Mode::kWrap) {
    to.step = axis.n;
    SetPeriodic(axis, axis.before + at, 0, to);
  } else {
    const bool is_edge = axis.mode == PadAxis::Mode::kEdge;
    int64_t begin = axis.before + at * axis.step, end = begin + 1;
    if (is_edge && at == axis.n - 1) end = axis.padded;
    if (is_edge && at == 0) begin = 0;
    begin -= axis.out_offset;
    end -= axis.out_offset;
    begin = begin < 0 ? 0 : begin;
    end = end < axis.out_size ? end : axis.out_size;
    to.first[0] = begin;
    to.count[0] = begin < end ? end - begin : 0;
  }
  return to;
}

template <class T>
__global__ void __launch_bounds__(kThreads) AddPadded(PadLaunch launch, int64_t elements) {
  auto* const to = static_cast<T*>(launch.to);
  const auto* const from = static_cast<const T*>(launch.from);
  for (int64_t i = FirstIndex(); i < elements; i += IndexStep()) {
    Targets targets[kMaxRank];
    int64_t rest = i, count = 1;
    for (int d = launch.rank - 1; d >= 0; --d) {
      targets[d] = TargetsOf(launch.axes[d], rest % launch.axes[d].in_size);
      rest /= launch.axes[d].in_size;
      count *= targets[d].count[0] + targets[d].count[1];
    }
    Compute<T> sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      int64_t choice = k, place = 0, stride = 1;
      for (int d = launch.rank - 1; d >= 0; --d) {
        const Targets& each = targets[d];
        const int64_t number = choice % (each.count[0] + each.count[1]);
        choice /= each.count[0] + each.count[1];
        const bool is_second = number >= each.count[0];
        place += stride * (is_second ? each.first[1] + (number - each.count[0]) * each.step
                                     : each.first[0] + number * each.step);
        stride *= launch.axes[d].out_size;
      }
      sum += Load(from + place);
    }
    Store(to + i, sum);
  }
}

Error PadGrad(const Queue& queue, const PadLaunch& launch) {
  int64_t elements = 1;
  for (int d = 0; d < launch.rank; ++d) elements *= launch.axes[d].in_size;
  if (elements == 0) return kDone;
  return VisitFloating(launch.dtype, [&](auto type) {
    return Launch(queue, BlocksFor(queue, elements), kThreads, AddPadded<decltype(type)>, launch,
                  elements);
  });
}

// ---- triangle -----------------------------------------------------------------------------------

// Of words side by side that lie in one row.
template <class Word, int kWords>
__global__ void __launch_bounds__(kThreads) KeepTriangle(TriangleLaunch launch) {
  struct alignas(sizeof(Word) * kWords) Group {
    Word words[kWords];
  };
  auto* const to = static_cast<Group*>(launch.to);
  const auto* const from = static_cast<const Group*>(launch.from);
  const int64_t groups = launch.elements / kWords;
  for (int64_t i = FirstIndex(); i < groups; i += IndexStep()) {
    const int64_t row = i * kWords / launch.columns, column = i * kWords % launch.columns;
    const int64_t edge = launch.edge + row % launch.rows;
    Group group = from[i];
    for (int k = 0; k < kWords; ++k) {
      if ((column + k >= edge) != launch.upper) group.words[k] = 0;
    }
    to[i] = group;
  }
}

Error Triangle(const Queue& queue, const TriangleLaunch& launch) {
  if (launch.elements == 0) return kDone;
  const bool is_wide = IsAligned(launch.to) && IsAligned(launch.from) &&
                       launch.columns * launch.element_bytes % 16 == 0;
  return VisitBytes(launch.element_bytes, [&](auto word) {
    using Word = decltype(word);
    constexpr int kWords = 16 / sizeof(Word);
    if (!is_wide) {
      return Launch(queue, BlocksFor(queue, launch.elements), kThreads, KeepTriangle<Word, 1>,
                    launch);
    }
    return Launch(queue, BlocksFor(queue, launch.elements / kWords), kThreads,
                  KeepTriangle<Word, kWords>, launch);
  });
}

}  // namespace

RearrangeTable MakeRearrangeTable() {
  return {.fill = Fill, .copy = Copy, .pad = Pad, .pad_grad = PadGrad, .triangle = Triangle};
}

}  // namespace braid::cuda
