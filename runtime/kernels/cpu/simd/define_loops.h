// What a family's loops end with: their table for the instruction set that they are compiled for.
// BRAID_ISA names its namespace and BRAID_ISA_CONSTANT its Isa; the compiler's flags choose the
// instructions. Such a source holds nothing but loops over raw pointers: an inline function that it
// shared with other translation units could leak instructions that the machine lacks into them.
#pragma once

#ifndef BRAID_ISA
#error "BRAID_ISA must name the instruction set"
#endif

#include "runtime/kernels/cpu/simd/isa.h"

#define BRAID_DEFINE_LOOPS(Table, table)                         \
  template <>                                                    \
  const Table& CompiledLoops<Table, Isa::BRAID_ISA_CONSTANT>() { \
    return table;                                                \
  }
