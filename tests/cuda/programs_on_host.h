// Programs on the host's memory, for module_on_host.cc; its compiler is MakeCompilerTable's.
#pragma once

#include "runtime/cuda/program_table.h"

namespace braid::cuda {

ProgramTable MakeProgramTable();

}  // namespace braid::cuda
