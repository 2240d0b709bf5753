#include "tests/simulation/sim_world.h"

#include <memory>
#include <utility>

#include "api/network.h"
#include "comm/loopback_transport.h"
#include "tests/simulation/sim_programs.h"

namespace braid {

SimWorldOutcome RunSimWorld(const SimWorldOptions& options) {
  LoopbackNetwork loopback;
  SimMachines machines(options.seed, options.ranks);
  for (const SimFault& fault : options.faults) machines.Expect(fault);
  SimWorldOutcome outcome;
  outcome.programs.assign(options.ranks, absl::UnavailableError("its program has not begun"));
  {
    SimPrograms programs(machines.world(), machines.observer());
    for (int rank = 0; rank < options.ranks; ++rank) {
      programs.Add(rank, [&, rank](Environment& environment) {
        NetworkOptions network = machines.NetworkOf(rank, options.join_timeout, options.hosts);
        network.environment = &environment;
        network.transport = options.transport;
        if (options.transport == "loopback") network.loopback = &loopback;
        auto world = dist::World::Join(&network);
        absl::Status status = world.status();
        if (world.ok()) {
          outcome.programs[rank] = options.program(**world, environment);
          status = (*world)->Close();
          world->reset();
        }
        machines.Ended(rank, status);
      });
    }
    programs.Run(options.limit);
  }
  machines.Release();
  static_cast<SimOutcome&>(outcome) = machines.Finish();
  return outcome;
}

}  // namespace braid
