// How layers get their names, and how a second layer of a name is told from one that shares.
#pragma once

#include <string>
#include <string_view>

#include "api/layers.h"
#include "graph/logical_graph.h"

namespace braid {

// What a layer's options say of its name.
struct LayerNaming {
  std::string_view kind;  // "linear": the name of those that have none, then linear_1, ...
  std::string name;       // "": none
  bool share = false;     // its variables are those of an earlier layer of that name
};

// The layer's name under the current scope, which it has from now on. "" after an error: a second
// layer of a name that does not say that it shares, or one that shares with nothing.
std::string NameLayer(LogicalGraph& graph, const LayerNaming& naming, SourceLocation where);

}  // namespace braid
