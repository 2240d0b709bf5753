// Ranks that do not make the same calls, as data: for threads of one process (dist_mismatch_test)
// and for real processes (dist_mismatch.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/dist/dist_case.h"

namespace braid {

struct Mismatch {
  std::string name;
  RankProgram program;             // of three ranks, that fails
  std::vector<std::string> words;  // of the error; alternatives stand apart by '|'
  absl::Duration limit = absl::Seconds(1);
};

// Of plain calls, of batches of them, and of those that move objects.
std::vector<Mismatch> PlainMismatches();
std::vector<Mismatch> BatchMismatches();
std::vector<Mismatch> ObjectMismatches();

// Makes some calls that fit together, then the mismatch, then a call that must say the same again.
// Returns what the ranks should all be told, or an error if a number was wrong or nothing failed.
struct MismatchEnd {
  absl::Status status;
  absl::Duration took;  // from the mismatch to its error
};
MismatchEnd RunMismatch(dist::World& world, const Mismatch& mismatch);

// As many ones, of the thread's own until the next call.
std::vector<float>& Floats(int64_t count);
// An all_reduce of four of them.
absl::Status SumFour(dist::World& world);
// `odd` on rank 1, `even` on the others.
RankProgram Apart(const RankProgram& even, const RankProgram& odd);

}  // namespace braid
