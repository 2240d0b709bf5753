// Which members of a group share a host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// By host, in the order of its first member: its members, in their order. `hosts`: of each member,
// by any numbers.
std::vector<std::vector<int>> MembersByHost(std::span<const uint32_t> hosts);

// How many hosts they are on, if there are several with several members each, as many on each; else
// 1.
int64_t NumHostsAlike(std::span<const uint32_t> hosts);

}  // namespace braid
