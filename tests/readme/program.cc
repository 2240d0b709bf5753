// The README's program, with its own includes and its own main.
#include "program.inc"
