#include "runtime/base/members_by_host.h"

#include <algorithm>
#include <map>

namespace braid {

std::vector<std::vector<int>> MembersByHost(std::span<const uint32_t> hosts) {
  std::vector<std::vector<int>> members;
  std::map<uint32_t, size_t> place;  // of each host in `members`
  for (size_t member = 0; member < hosts.size(); ++member) {
    const auto [found, is_new] = place.try_emplace(hosts[member], members.size());
    if (is_new) members.emplace_back();
    members[found->second].push_back(static_cast<int>(member));
  }
  return members;
}

int64_t NumHostsAlike(std::span<const uint32_t> hosts) {
  const std::vector<std::vector<int>> members = MembersByHost(hosts);
  if (members.size() < 2 || members.front().size() < 2) return 1;
  const bool are_alike = std::ranges::all_of(
      members, [&](const auto& host) { return host.size() == members.front().size(); });
  return are_alike ? static_cast<int64_t>(members.size()) : 1;
}

}  // namespace braid
