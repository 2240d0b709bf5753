// Seeds for what the ranks of a world say to each other and to their master.
#pragma once

#include <functional>
#include <string>

namespace braid::fuzz {

using WriteTargetSeed =
    std::function<void(const std::string& target, const std::string& name, const std::string&)>;
void WriteGroupSeeds(const WriteTargetSeed& write);

}  // namespace braid::fuzz
