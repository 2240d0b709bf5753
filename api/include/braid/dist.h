// Braid's process groups: what programs include that start one process a rank.
#pragma once

#include "api/dist.h"             // IWYU pragma: export
#include "api/dist_batch.h"       // IWYU pragma: export
#include "api/dist_main.h"        // IWYU pragma: export
#include "api/dist_memory.h"      // IWYU pragma: export
#include "api/dist_objects.h"     // IWYU pragma: export
#include "api/dist_store.h"       // IWYU pragma: export
#include "api/dist_window.h"      // IWYU pragma: export
#include "api/object_format.h"    // IWYU pragma: export
#include "api/partition.h"        // IWYU pragma: export
#include "api/reduction.h"        // IWYU pragma: export
#include "api/spawn.h"            // IWYU pragma: export
#include "runtime/base/half.h"    // IWYU pragma: export
#include "runtime/base/status.h"  // IWYU pragma: export
