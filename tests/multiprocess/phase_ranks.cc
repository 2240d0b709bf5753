// The same as phase_program (phase_training.h), as a program of ranks with a session on their
// world.
#include <braid/dist.h>

#include "absl/time/time.h"
#include "tests/multiprocess/phase_training.h"

namespace {

absl::Status Program(braid::dist::World& world) {
  BRAID_ASSIGN_OR_RETURN(const auto session, braid::Session::Start(world, {}));
  BRAID_RETURN_IF_ERROR(braid::ExtendByPace(session->operators(), session->kernels()));
  absl::Status status;
  const auto agreed = [&](bool own) {
    // What rank 0 sees; a failure is that of the session's next call, too.
    status.Update(braid::dist::BroadcastObject(world, own, /*root=*/0));
    return own && status.ok();
  };
  BRAID_RETURN_IF_ERROR(braid::GoThroughPhases(*session, agreed));
  BRAID_RETURN_IF_ERROR(status);
  return session->Close(absl::OkStatus());
}

}  // namespace

int main(int argc, char** argv) {
  return braid::dist::Main(argc, argv, {.init = {.timeout = absl::Seconds(15)}}, Program);
}
