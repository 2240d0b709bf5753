// Braid: the one header that users include.
#pragma once

#include "api/job.h"                     // IWYU pragma: export
#include "api/layers.h"                  // IWYU pragma: export
#include "api/main.h"                    // IWYU pragma: export
#include "api/optimizers.h"              // IWYU pragma: export
#include "api/schedules.h"               // IWYU pragma: export
#include "api/session.h"                 // IWYU pragma: export
#include "graph/functional.h"            // IWYU pragma: export
#include "runtime/array.h"               // IWYU pragma: export
#include "runtime/base/philox.h"         // IWYU pragma: export
#include "runtime/base/status.h"         // IWYU pragma: export
#include "runtime/data/dataset_kinds.h"  // IWYU pragma: export
#include "runtime/data/dataset_spec.h"   // IWYU pragma: export
#include "runtime/data/text_dataset.h"   // IWYU pragma: export
