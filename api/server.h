// Parameter servers: variables that live on some devices and are used on others
// (MinimizeOptions::server).
//
//   const Tensor loss = job.On(job.devices().Slice(0, 4), [&] { ... });  // the workers
//   job.Minimize(loss, braid::Sgd{.lr = 0.1},
//                {.server = braid::Server{.placement = job.devices().Slice(4, 1),
//                                         .max_staleness = 4}});
#pragma once

#include <string>

#include "graph/placement.h"

namespace braid {

// Where the variables of a Minimize live, with their optimizer's states: workers pull values from
// there and push gradients there, wherever job.On has them work. Where there are several devices,
// what has no hint is split along its first axis.
struct Server {
  Placement placement;
  // 0: a step updates with the sum of all workers' gradients, as without a server. k: each worker's
  // gradient is applied when it comes, and a worker may be up to k steps ahead of the slowest (Ho
  // et al., "More effective distributed ML via a stale synchronous parallel parameter server",
  // 2013): what makes one worker slow for some steps is then made up for. What is slow all the time
  // slows all down, with any bound.
  //
  // A worker's gradient is that of the mean over its own samples, and each of n workers' updates is
  // one of the optimizer's at 1/n of its rate, so that a round of updates goes as far as one of all
  // together. Numbers then differ from run to run. The batch must be split over the workers, which
  // must not wait for each other within a step (no clipping, no statistics of the whole batch).
  // Devices are CPUs. Beside a variable the server needs as much memory again for what each worker
  // pushes, and for what each on another node pulls.
  int max_staleness = 0;
  // Not empty: fetches under this name, i64 [], how many steps the worker that was furthest ahead
  // in a round of updates was ahead of the slowest.
  std::string staleness = {};
};

}  // namespace braid
