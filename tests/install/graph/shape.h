// A header of this project's own, which has the name of one of Braid's.
#pragma once

#error "Braid's headers include another project's graph/shape.h"
