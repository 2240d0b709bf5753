// The entry of a program of process groups: flags, the world, and what goes wrong, said once.
//
//   int main(int argc, char** argv) {
//     return braid::dist::Main(argc, argv, [](braid::dist::World& world) -> absl::Status { ... });
//   }
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "api/dist.h"

namespace braid::dist {

struct MainOptions {
  // What --help says that the program does.
  std::string about = "A program of Braid that each process of a process group runs.";
  InitOptions init = {};  // flags override it
};

// Parses the command line as braid::Main does, joins the world (World::Init), calls `program` and
// closes the world, with the error if there is one, which the other ranks then get. With --spawn=N
// it does so in N processes of this machine (Spawn). Returns the process's exit code: 0; 1 after
// printing the error, also if standard output could not be written; 128 + the signal if SIGINT or
// SIGTERM ended it.
//
// A failure anywhere ends the process at most 3 s after it is known, also while `program` computes.
int Main(int argc, char** argv, const MainOptions& options,
         const std::function<absl::Status(World& world)>& program);
int Main(int argc, char** argv, const std::function<absl::Status(World& world)>& program);

}  // namespace braid::dist
