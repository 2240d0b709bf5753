// Tests that need processors to be scarce.
#pragma once

#include <sched.h>

#include "gtest/gtest.h"

namespace braid {

// Of the processors that the calling thread may use, it and what it starts keep to the first.
inline void KeepToOneProcessor() {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

}  // namespace braid
