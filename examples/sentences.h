// Made-up sentences, for machines without a text: a dataset of the example's own.
#pragma once

#include <braid/braid.h>

#include <cstdint>

namespace examples {

// Sentences [first, first + count) of those of a seed. Field: tokens i32 [time]. Either half counts
// round through the eight words of a topic of its own, from anywhere.
struct SentencesOptions {
  int64_t first = 0;
  int64_t count = 1 << 20;
  uint64_t seed = 1;
  int64_t time = 32;        // even
  int64_t vocabulary = 64;  // tokens are below; at least 8
};
braid::DatasetSpec Sentences(const SentencesOptions& options);

// What a program that reads them gives to braid::Main or a session.
braid::DatasetKinds KindsWithSentences();

}  // namespace examples
