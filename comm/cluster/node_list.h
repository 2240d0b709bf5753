// The nodes of a cluster as users write them down, in the node list file or in the program, and the
// canonical text in which such lists are passed on and compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/cluster/device_spec.h"

namespace braid {

constexpr uint16_t kDefaultControlPort = 9988;
// Of process groups, as torch.distributed's.
constexpr uint16_t kDefaultGroupPort = 29500;
constexpr int kMaxNodes = 65535;

struct ClusterNode {
  std::string host;   // without brackets; "": only the launcher knows where it is
  uint16_t port = 0;  // 0: the default
  std::optional<DeviceSpec> devices = std::nullopt;  // none: the default

  bool operator==(const ClusterNode&) const = default;
};

// What a line without them gets.
struct NodeDefaults {
  uint16_t port = kDefaultControlPort;
  DeviceSpec devices = {};
};

struct NodeList {
  std::string name;                    // for messages: "nodes.txt"
  std::vector<ClusterNode> nodes;      // every port and devices filled in
  std::vector<std::string> locations;  // where each node was said, for messages: "nodes.txt:3"
};

// Lines of `host[:port] [devices]`; '#' begins a comment. Any bytes are fine as input: an error has
// `name`, the number of the line, the line and what was expected.
absl::StatusOr<NodeList> ParseNodeList(std::string_view text, const std::string& name,
                                       const NodeDefaults& defaults);
absl::StatusOr<NodeList> ReadNodeList(const std::string& path, const NodeDefaults& defaults);
// The same for a list that code says.
absl::StatusOr<NodeList> CheckNodeList(const std::vector<ClusterNode>& nodes,
                                       const std::string& name, const NodeDefaults& defaults);

// The canonical text, which ParseNodeList reads back: a line a node, nothing left to defaults.
std::string NodeListText(const std::vector<ClusterNode>& nodes);

// The first difference of two canonical texts, with the line and both values. `node_list` may hold
// any bytes.
std::string DescribeDifference(const std::string& master_list, const std::string& node_list);

}  // namespace braid
