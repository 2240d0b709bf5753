// Calls a user's function that records a job, and finds what is wrong with what it did.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "graph/logical_graph.h"

namespace braid {

// The first thing that went wrong, exceptions included.
absl::Status RecordJob(const std::string& name, LogicalGraph& graph,
                       const std::function<void()>& record);

// INVALID_ARGUMENT for a job that fetches, minimizes and assigns nothing.
absl::Status CheckHasEffect(const std::string& name, const LogicalGraph& graph);

}  // namespace braid
