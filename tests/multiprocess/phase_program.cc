// A training program that stays in a phase for as long as its user wants (phase_training.h).
#include "tests/multiprocess/phase_training.h"
#include "tests/support/lagging_device.h"

int main(int argc, char** argv) {
  const auto program = [](braid::Session& session) {
    return braid::GoThroughPhases(session, [](bool own) { return own; });
  };
  return braid::Main(argc, argv,
                     {.device_kinds = braid::KindsWithLagging(), .extend = braid::ExtendByPace},
                     program);
}
