// What this process has used so far, for what measures it.
#pragma once

#include <sys/resource.h>

namespace braid {

inline rusage ProcessUsage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

// Of all threads, user and system.
inline double CpuSeconds() {
  const rusage usage = ProcessUsage();
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The most memory that it had. Linux counts KiB.
inline double PeakMiB() { return static_cast<double>(ProcessUsage().ru_maxrss) / 1024; }

}  // namespace braid
