// The texts of the headers that programs include which are compiled when a job is loaded. Made of
// the files by cmake/program_headers.cmake; the compiler knows no system's headers, so what Braid's
// need of these is here, too.
#pragma once

#include <span>

namespace braid::cuda {

struct ProgramHeader {
  const char* name;  // as #include has it
  const char* text;
};
std::span<const ProgramHeader> ProgramHeaders();

}  // namespace braid::cuda
