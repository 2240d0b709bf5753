// The loop that the examples share: they train, and evaluate now and then.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace examples {

struct Rounds {
  int64_t steps = 0;             // of training, in all: --steps
  int64_t report_every = 0;      // steps of training between evaluations: --report_every
  int64_t evaluation_steps = 0;  // from the evaluating job's first, the same samples each time
};

// Gets what both jobs fetched in a round; `done` training steps have been made.
using RoundReport = std::function<void(int64_t done, const braid::RunResult& trained,
                                       const braid::RunResult& evaluated)>;

// INVALID_ARGUMENT for less than one step, naming its flag; otherwise what a Run returns.
absl::Status TrainInRounds(braid::CompiledJob& train, braid::CompiledJob& evaluate,
                           const Rounds& rounds, const RoundReport& report);

// A checkpoint's folder as a flag says it; nothing is done for "".
absl::Status LoadFrom(braid::Session& session, const std::string& folder);
absl::Status SaveTo(braid::Session& session, const std::string& folder);

}  // namespace examples
