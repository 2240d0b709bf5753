// The ranks of a world as child processes of this one.
//
//   absl::Status Train(int rank) {
//     BRAID_ASSIGN_OR_RETURN(const auto world, dist::World::Init());
//     ...
//   }
//   int main() {
//     const absl::Status status = dist::Spawn(Train, 4);
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace braid::dist {

// Calls `fn` in `ranks` new processes of this machine, with their numbers from 0, and returns when
// all have ended. In each of them RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT are set, and BRAID_AUTH_TOKEN if it is not, so that World::Init() joins them. They
// are forked: what this process has computed they have, too, and what they compute stays theirs.
//
// FAILED_PRECONDITION if this process has other threads, which a fork would lose: so it comes
// before sessions, worlds and threads of the program's own.
//
// The first failure ends all ranks and is what is returned, with the rank: an error that `fn`
// returns or throws, or a process that a signal ends, or that exits by itself. For a second the
// others may end by themselves, and say why; then they get SIGTERM, and a second and a half later
// SIGKILL. Of failures within that second, one that is no consequence of another counts before one
// that may be: a signal other than SIGABRT; then an error of the rank's own; then SIGABRT and exit;
// then an error that the world gave to all its ranks. Among equals, the first by time.
//
// The processes end with this one, however it ends. SIGINT, SIGTERM and SIGHUP, where they have
// their default effect, first end the ranks and then this process.
absl::Status Spawn(const std::function<absl::Status(int rank)>& fn, int ranks);

}  // namespace braid::dist
