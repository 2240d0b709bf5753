// Random numbers that depend on what they are for, never on who computes them. Philox 4x32-10
// (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) maps a
// counter and a key to four 32-bit words; a RandomKey says seed, name and step, and the counter is
// the index of the element in the whole logical tensor. So any shard of it, computed anywhere in
// any order, holds the same numbers.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace braid {

using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;  // multipliers
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;  // key increments

constexpr PhiloxBlock Philox4x32(PhiloxBlock c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxM0} * c[0];
    const uint64_t p1 = uint64_t{kPhiloxM1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kPhiloxW0;
    key[1] += kPhiloxW1;
  }
  return c;
}

// FNV-1a, 64 bits: the same on every machine and in every version. `hash`: of what stands before.
constexpr uint64_t StableHash(std::string_view name, uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Seed and name are mixed into the 64-bit Philox key; step and element index fill the counter
// exactly, so steps and elements never collide.
struct RandomKey {
  std::array<uint32_t, 2> key = {0, 0};
  uint64_t step = 0;
};

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Of the devices that each have a value of their own, `mirror` draws by this seed. The first one
// draws as if there were no others.
constexpr uint64_t MirroredSeed(uint64_t seed, int64_t mirror) {
  return mirror == 0 ? seed : MixBits(seed ^ MixBits(static_cast<uint64_t>(mirror)));
}

constexpr RandomKey MakeRandomKey(uint64_t seed, uint64_t name_hash, int64_t step) {
  const uint64_t mixed = MixBits(name_hash ^ MixBits(seed + 0x9e3779b97f4a7c15u));
  return {{static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)},
          static_cast<uint64_t>(step)};
}

constexpr RandomKey MakeRandomKey(uint64_t seed, std::string_view name, int64_t step) {
  return MakeRandomKey(seed, StableHash(name), step);
}

// Words 4 * block .. 4 * block + 3 of the key's stream.
constexpr PhiloxBlock BlockAt(const RandomKey& key, uint64_t block) {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(key.step), static_cast<uint32_t>(key.step >> 32)},
                    key.key);
}

constexpr uint32_t Uint32At(const RandomKey& key, uint64_t index) {
  return BlockAt(key, index / 4)[index % 4];
}

// [0, 1): the upper 24 bits of a word, all of which a float holds exactly.
constexpr float UniformFromWord(uint32_t word) { return (word >> 8) * 0x1p-24f; }

constexpr float UniformAt(const RandomKey& key, uint64_t index) {
  return UniformFromWord(Uint32At(key, index));
}

// [0, 1) with 53 bits: words 2 * index and 2 * index + 1.
constexpr double UniformDoubleAt(const RandomKey& key, uint64_t index) {
  const PhiloxBlock block = BlockAt(key, index / 2);
  const int lane = 2 * static_cast<int>(index % 2);
  const uint64_t bits = (uint64_t{block[lane]} << 32) | block[lane + 1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct NormalPair {
  double even, odd;
};

// Box-Muller. In double, so that the rounded float hardly depends on the machine's libm. As a
// template it may be constexpr though the functions it calls are not, and so GPU kernels share it.
template <class Double = double>
constexpr NormalPair NormalsFromWords(uint32_t first, uint32_t second) {
  const Double radius = std::sqrt(-2.0 * std::log((first + 0.5) * 0x1p-32));
  const Double angle = 2.0 * std::numbers::pi * (second * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Standard normal; elements 2k and 2k + 1 share words 2k and 2k + 1.
inline double NormalAt(const RandomKey& key, uint64_t index) {
  const PhiloxBlock block = BlockAt(key, index / 4);
  const int lane = static_cast<int>(index % 4) & ~1;
  const NormalPair pair = NormalsFromWords(block[lane], block[lane + 1]);
  return index % 2 == 0 ? pair.even : pair.odd;
}

namespace philox_internal {

// Blocks computed side by side. Enough that compilers vectorise the loops over them instead of
// unrolling them.
inline constexpr size_t kGroup = 64;

// Writes 4 * kGroup words for each of `groups` groups from `block` on.
inline void FillGroups(const RandomKey& key, uint64_t block, size_t groups,
                       uint32_t* __restrict out) {
  for (size_t group = 0; group < groups; ++group, block += kGroup, out += 4 * kGroup) {
    uint32_t c0[kGroup], c1[kGroup], c2[kGroup], c3[kGroup];
    for (size_t i = 0; i < kGroup; ++i) {
      c0[i] = static_cast<uint32_t>(block + i);
      c1[i] = static_cast<uint32_t>((block + i) >> 32);
      c2[i] = static_cast<uint32_t>(key.step);
      c3[i] = static_cast<uint32_t>(key.step >> 32);
    }
    uint32_t k0 = key.key[0], k1 = key.key[1];
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < kGroup; ++i) {
        const uint64_t p0 = uint64_t{kPhiloxM0} * c0[i];
        const uint64_t p1 = uint64_t{kPhiloxM1} * c2[i];
        c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<uint32_t>(p1);
        c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<uint32_t>(p0);
      }
      k0 += kPhiloxW0;
      k1 += kPhiloxW1;
    }
    for (size_t i = 0; i < kGroup; ++i) {
      out[4 * i] = c0[i];
      out[4 * i + 1] = c1[i];
      out[4 * i + 2] = c2[i];
      out[4 * i + 3] = c3[i];
    }
  }
}

}  // namespace philox_internal

// out[j] = Uint32At(key, first_index + j) for j < n.
inline void FillUint32(const RandomKey& key, uint64_t first_index, size_t n, uint32_t* out) {
  while (n > 0 && first_index % 4 != 0) {
    *out++ = Uint32At(key, first_index++);
    --n;
  }
  constexpr size_t kGroupWords = 4 * philox_internal::kGroup;
  const size_t groups = n / kGroupWords;
  if (groups > 0) {
    philox_internal::FillGroups(key, first_index / 4, groups, out);
    out += groups * kGroupWords;
    first_index += groups * kGroupWords;
    n -= groups * kGroupWords;
  }
  while (n > 0) {
    const PhiloxBlock block = BlockAt(key, first_index / 4);
    for (size_t lane = 0; lane < 4 && n > 0; ++lane, --n, ++first_index) *out++ = block[lane];
  }
}

// out[j] = UniformAt(key, first_index + j) for j < n.
inline void FillUniform(const RandomKey& key, uint64_t first_index, size_t n, float* out) {
  uint32_t words[1024];
  while (n > 0) {
    const size_t count = n < 1024 ? n : 1024;
    FillUint32(key, first_index, count, words);
    for (size_t j = 0; j < count; ++j) out[j] = UniformFromWord(words[j]);
    out += count;
    first_index += count;
    n -= count;
  }
}

// out[j] = float(NormalAt(key, first_index + j)) for j < n.
inline void FillNormal(const RandomKey& key, uint64_t first_index, size_t n, float* out) {
  if (n > 0 && first_index % 2 == 1) {
    *out++ = static_cast<float>(NormalAt(key, first_index++));
    --n;
  }
  uint32_t words[1024];
  while (n >= 2) {
    const size_t count = n < 1024 ? n & ~size_t{1} : 1024;
    FillUint32(key, first_index, count, words);
    for (size_t j = 0; j < count; j += 2) {
      const NormalPair pair = NormalsFromWords(words[j], words[j + 1]);
      out[j] = static_cast<float>(pair.even);
      out[j + 1] = static_cast<float>(pair.odd);
    }
    out += count;
    first_index += count;
    n -= count;
  }
  if (n == 1) *out = static_cast<float>(NormalAt(key, first_index));
}

}  // namespace braid
