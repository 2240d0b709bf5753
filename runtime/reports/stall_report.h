// What a session does and waits for, in words: of `braid status` and of the report of a stall.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/reactor.h"
#include "runtime/reports/wait_graph.h"

namespace braid {

struct SessionState {
  ClusterState cluster;
  std::string phase;  // "stepping job 'train'"
  Nanoseconds phase_for = 0;
  bool is_stepping = false;
  std::string failure;             // the first cause; "": none
  std::vector<std::string> waits;  // of calls of process groups, a sentence each
};

// What has lasted so long: "no act has ended here for 60 s (--stall_timeout)". `where` is " here"
// or empty.
std::string StallTitle(std::string_view standing, std::string_view where, Nanoseconds silence);

// Begins with a sentence that names what everything waits for; then the chain that leads there, how
// much the nodes were waited for, and what each actor waits for. Bounded: what is left out is
// counted. Lines end with a newline.
std::string StallReport(const SessionState& session);

}  // namespace braid
