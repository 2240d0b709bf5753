// For loops that work on elements one by one.
#pragma once

// Stands before such a loop: its iterations are independent, also when what it writes is what it
// reads.
#if defined(__clang__)
#define BRAID_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define BRAID_INDEPENDENT _Pragma("GCC ivdep")
#endif
