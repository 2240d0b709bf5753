#include "runtime/kernels/thread_settings.h"

#include <omp.h>

namespace braid {

KeptThreadSettings::KeptThreadSettings() : threads_(omp_get_max_threads()) {}

KeptThreadSettings::~KeptThreadSettings() {
  if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
}

}  // namespace braid
