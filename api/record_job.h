// Calls a user's function that records a job, and finds what is wrong with what it did.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "graph/logical_graph.h"

namespace braid {

// The first thing that went wrong, exceptions included.
absl::Status RecordJob(const std::string& name, LogicalGraph& graph,
                       const std::function<void()>& record);

// Names of fetched losses that the job minimizes.
std::set<std::string, std::less<>> FetchedLosses(const LogicalGraph& graph);

// Samples that a step takes from its readers: the largest batch; 0 without readers.
int64_t SamplesPerStep(const LogicalGraph& graph);

// INVALID_ARGUMENT for a job that fetches, minimizes and assigns nothing.
absl::Status CheckHasEffect(const std::string& name, const LogicalGraph& graph);

}  // namespace braid
