// What a job records of its variables' server (server.h).
#pragma once

#include "api/server.h"
#include "graph/logical_graph.h"
#include "graph/placement.h"
#include "graph/source_location.h"

namespace braid {

// Places what `request` trains on the server and says what the compiler is to know of it.
// `devices`: all of the cluster, which is where operators are that the job places nowhere. What is
// wrong is the graph's error.
void PlaceOnServer(LogicalGraph& graph, MinimizeRequest& request, const Server& server,
                   const Placement& devices, SourceLocation where);

}  // namespace braid
