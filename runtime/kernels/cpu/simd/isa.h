// The instruction sets that the loops of kernels are compiled for, and the choice among them when
// the program runs. A family of loops is a struct of function pointers in FAMILY_loops.h and its
// loops in FAMILY_loops.cc, which braid_simd_loops(FAMILY) compiles once per instruction set.
#pragma once

namespace braid::simd {

// Each has the instructions of those before it.
enum class Isa : int { kBaseline, kAvx2, kAvx512 };
inline constexpr Isa kIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

// Whether kAvx2 and kAvx512 are compiled.
#if defined(__x86_64__)
inline constexpr bool kHasX86Isas = true;
#else
inline constexpr bool kHasX86Isas = false;
#endif

const char* NameOf(Isa isa);

// The last one that this machine has and loops are compiled for.
Isa BestIsa();

// A family's table for one instruction set: constant data.
template <class Table, Isa isa>
const Table& CompiledLoops();

// Stands in the family's header: where the tables come from.
#define BRAID_DECLARE_LOOPS(Table)                     \
  template <>                                          \
  const Table& CompiledLoops<Table, Isa::kBaseline>(); \
  template <>                                          \
  const Table& CompiledLoops<Table, Isa::kAvx2>();     \
  template <>                                          \
  const Table& CompiledLoops<Table, Isa::kAvx512>();

template <class Table>
const Table& LoopsFor(Isa isa) {
  if constexpr (kHasX86Isas) {
    if (isa == Isa::kAvx512) return CompiledLoops<Table, Isa::kAvx512>();
    if (isa == Isa::kAvx2) return CompiledLoops<Table, Isa::kAvx2>();
  }
  return CompiledLoops<Table, Isa::kBaseline>();
}

// The table of the best instruction set that this machine has. A kernel picks it when it is made.
template <class Table>
const Table& BestLoops() {
  return LoopsFor<Table>(BestIsa());
}

}  // namespace braid::simd
