// A card's instructions, for the host. Part of cuda_on_host.h; the meaning of each function stands
// in its twin, runtime/kernels/cuda/instructions_on_card.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/half.h"

namespace braid::cuda_on_host {

// What each thread of a block shows to its warp.
inline constexpr unsigned kMostThreads = 1024;
struct Operands {
  uint32_t a[4], b[2];
};
struct Shown {
  Operands operands[kMostThreads];
  const void* rows[kMostThreads];
};
inline Shown& TheShown() {
  static Shown shown;
  return shown;
}
inline unsigned FirstOfWarp() { return Now().thread.x / 32 * 32; }

// A copy is made at once or when it is waited for, as a draw says: a card may do either. The first
// shows who still reads what was there, the second who does not wait.
struct Copy {
  void* to;
  const void* from;
  bool is_there;
  void Make() const {
    if (is_there) {
      std::memcpy(to, from, 16);
    } else {
      std::memset(to, 0, 16);
    }
  }
};
inline bool IsMadeAtOnce() {
  static std::minstd_rand random(1);
  return random() % 2 == 0;
}
struct Copies {
  std::vector<Copy> begun;
  std::vector<std::vector<Copy>> groups;
};
inline Copies& MyCopies() {
  static Copies copies[kMostThreads];
  return copies[Now().thread.x];
}

template <class T>
float Half(uint32_t pair, unsigned half) {
  return static_cast<float>(T::FromBits(static_cast<uint16_t>(pair >> (16 * half))));
}

// `turned`: the rows are the columns.
inline void LoadSquares(const void* row, bool turned, uint32_t (&to)[4]) {
  TheShown().rows[Now().thread.x] = row;
  MeetWarp(0, 0);
  const unsigned g = Lane() / 4, t = Lane() % 4;
  for (unsigned square = 0; square < 4; ++square) {
    uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned from_row = turned ? 2 * t + i : g, column = turned ? g : 2 * t + i;
      const void* const at = TheShown().rows[FirstOfWarp() + 8 * square + from_row];
      std::memcpy(&pair[i], static_cast<const uint16_t*>(at) + column, sizeof pair[i]);
    }
    to[square] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
  MeetWarp(0, 0);
}

}  // namespace braid::cuda_on_host

namespace braid::cuda {

inline float Kept(float value) { return value; }
inline double Kept(double value) { return value; }

template <class T>
void MultiplyOnUnit(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&c)[4]) {
  using cuda_on_host::Half;
  cuda_on_host::Shown& shown = cuda_on_host::TheShown();
  shown.operands[cuda_on_host::Now().thread.x] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  cuda_on_host::MeetWarp(0, 0);
  const unsigned g = cuda_on_host::Lane() / 4, t = cuda_on_host::Lane() % 4;
  const cuda_on_host::Operands* const warp = shown.operands + cuda_on_host::FirstOfWarp();
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned owner = k % 8 / 2, half = k % 2, late = k / 8;
    for (unsigned i = 0; i < 4; ++i) {
      const float x = Half<T>(warp[4 * g + owner].a[2 * late + i / 2], half);
      const float y = Half<T>(warp[4 * (2 * t + i % 2) + owner].b[late], half);
      c[i] += x * y;
    }
  }
  cuda_on_host::MeetWarp(0, 0);
}

template <class T>
uint32_t RoundedPair(float low, float high) {
  return T(low).bits | static_cast<uint32_t>(T(high).bits) << 16;
}

template <class T>
T Rounded(float value) {
  return T(value);
}
template <class T>
float Widened(T value) {
  return static_cast<float>(value);
}

inline void LoadSquares(const void* row, uint32_t (&to)[4]) {
  cuda_on_host::LoadSquares(row, false, to);
}
inline void LoadSquaresTurned(const void* row, uint32_t (&to)[4]) {
  cuda_on_host::LoadSquares(row, true, to);
}

inline void BeginCopy(void* shared, const void* from, bool is_there) {
  const cuda_on_host::Copy copy = {shared, from, is_there};
  if (cuda_on_host::IsMadeAtOnce()) return copy.Make();
  cuda_on_host::MyCopies().begun.push_back(copy);
}
inline void EndCopyGroup() {
  cuda_on_host::Copies& mine = cuda_on_host::MyCopies();
  mine.groups.push_back(std::move(mine.begun));
  mine.begun.clear();
}
template <int kLeft>
void AwaitCopies() {
  auto& groups = cuda_on_host::MyCopies().groups;
  while (groups.size() > static_cast<size_t>(kLeft)) {
    for (const cuda_on_host::Copy& copy : groups.front()) copy.Make();
    groups.erase(groups.begin());
  }
}

inline float FastExp2(float x) { return std::exp2(x); }

}  // namespace braid::cuda
