// By which algorithm a collective is carried out, and in which chunks: the one table, which the
// compiler reads when it makes a plan, and a process group when it makes a call.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/collective_kind.h"

namespace braid {

// Where the members of a collective are.
enum class MemberSpread : uint8_t {
  kProcess,    // all in one process
  kProcesses,  // in several
  kHosts,      // on several hosts with several of them each, as many on each
};
std::string_view MemberSpreadName(MemberSpread spread);  // "one process", "processes", "hosts"

struct CollectiveUse {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  MemberSpread spread = MemberSpread::kProcesses;
  int64_t members = 1;
  int64_t hosts = 1;  // of kHosts
  // Bytes of the whole vector: what is reduced, gathered or scattered, or, of an all_to_all, what
  // all members hold together.
  int64_t bytes = 0;
  int64_t block_bytes = 0;  // the most that belongs to one member; of an all_to_all unused
  bool is_planned = false;  // a plan's, which keeps memory for each of its collectives
};

struct CollectiveRow {
  MemberSpread spread;
  std::optional<CollectiveKind> kind;  // none: any
  int64_t most_members;
  int64_t most_bytes;  // that all members together read or write
  CollectiveMethod method;
  bool is_for_plans = true;  // else for process groups only

  bool Fits(const CollectiveUse& use) const;
};
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();  // in a row

// The first row that fits says how.
std::span<const CollectiveRow> CollectiveTable();
CollectiveMethod MethodOf(const CollectiveUse& use);

}  // namespace braid
