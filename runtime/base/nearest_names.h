// Names that are like one that is not there, for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

// Up to three of `names`, the most alike first by Levenshtein's distance: "loss, losses"; "none" if
// there are no names.
std::string NearestNames(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace braid
