// How layers get their names, and how a second layer of a name is told from one that shares.
#pragma once

#include <string>
#include <string_view>

#include "graph/logical_graph.h"

namespace braid {

// Decides on the name of a layer under the current scope: the one given, or `kind`, kind_1, ... for
// a layer without one (""). False after an error: a second layer of a name that does not say that
// it shares its variables, or one that shares with nothing.
bool NameLayer(LogicalGraph& graph, std::string_view kind, std::string& name, bool share,
               SourceLocation where);

}  // namespace braid
