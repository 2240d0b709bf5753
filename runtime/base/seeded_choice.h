// The choices of a simulation, behind an interface: drawn by a seed, or enumerated by a search. Not
// for random numbers that a user's program sees.
#pragma once

#include <cstdint>

namespace braid {

// Which of several things happens next.
class Choice {
 public:
  virtual ~Choice() = default;
  // In [0, n), n >= 1.
  virtual uint64_t Below(uint64_t n) = 0;
};

// A small generator whose sequence depends on its seed alone, on every machine and standard
// library.
class SeededChoice final : public Choice {
 public:
  explicit SeededChoice(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  // The bias for n far below 2^64 is of no concern to a simulation.
  uint64_t Below(uint64_t n) override { return n <= 1 ? 0 : Next() % n; }

 private:
  uint64_t state_;
};

}  // namespace braid
