#include "comm/cluster/node_list.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/cluster/host_and_port.h"
#include "comm/cluster/plain_text.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kMaxListBytes = size_t{16} << 20;
constexpr std::string_view kLineForm =
    "host[:port] [devices] was expected, e.g. 10.0.0.1:9988 cpu:4";
constexpr std::string_view kBlanks = " \t\r";

// The words of a line, up to a comment.
std::vector<std::string_view> SplitWords(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return words;
    line = line.substr(begin);
    const size_t end = std::min(line.find_first_of(kBlanks), line.size());
    words.push_back(line.substr(0, end));
    line = line.substr(end);
  }
}

// Takes the next line off `text`, without its end.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

absl::StatusOr<ClusterNode> ParseLine(const std::vector<std::string_view>& words) {
  if (words.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is one word too many; %s", Excerpt(words[2]), kLineForm));
  }
  BRAID_ASSIGN_OR_RETURN(const HostAndPort address, ParseHostAndPort(words[0]));
  ClusterNode node{.host = address.host, .port = address.port};
  if (words.size() == 2) {
    BRAID_ASSIGN_OR_RETURN(node.devices, ParseDeviceSpec(std::string(words[1])));
  }
  return node;
}

// Fills in the defaults and refuses what no cluster can have.
class NodeListBuilder {
 public:
  NodeListBuilder(std::string name, const NodeDefaults& defaults) : defaults_(defaults) {
    list_.name = std::move(name);
  }

  absl::Status Add(ClusterNode node, const std::string& location) {
    if (node.port == 0) node.port = defaults_.port;
    if (!node.devices.has_value()) node.devices = defaults_.devices;
    if (list_.nodes.size() == kMaxNodes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a cluster has at most %d nodes, this is one more", kMaxNodes));
    }
    const std::string address = FormatHostAndPort({node.host, node.port});
    const auto [it, is_new] = index_of_.try_emplace(address, list_.nodes.size());
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is already node %d (%s); nodes on one host need different ports",
                          address, it->second, list_.locations[it->second]));
    }
    list_.nodes.push_back(std::move(node));
    list_.locations.push_back(location);
    return absl::OkStatus();
  }

  absl::StatusOr<NodeList> Build() && {
    if (list_.nodes.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s lists no node; a line of %s", list_.name, kLineForm));
    }
    return std::move(list_);
  }

 private:
  const NodeDefaults defaults_;
  NodeList list_;
  std::map<std::string, size_t> index_of_;  // by host and port
};

// Lines without words are fine.
absl::Status AddLine(std::string_view line, const std::string& location, NodeListBuilder& builder) {
  if (line.size() > kMaxLineBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the line has %d bytes; at most %d were expected", line.size(), kMaxLineBytes));
  }
  const std::vector<std::string_view> words = SplitWords(line);
  if (words.empty()) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(ClusterNode node, ParseLine(words));
  return builder.Add(std::move(node), location);
}

// Closes the descriptor however ReadFile ends.
struct OpenFile {
  int descriptor = -1;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

absl::Status CannotRead(const std::string& path, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("cannot read the node list '%s': %s", path, why));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // A pipe nobody writes to must not hold the start: it opens at once and is refused below.
  OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.descriptor < 0) return CannotRead(path, std::strerror(errno));
  struct stat status;
  if (fstat(file.descriptor, &status) != 0) return CannotRead(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return CannotRead(path, "it is no regular file");
  std::string text;
  char buffer[64 * 1024];
  while (true) {
    const ssize_t bytes = read(file.descriptor, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return CannotRead(path, std::strerror(errno));
    if (bytes == 0) return text;
    text.append(buffer, bytes);
    if (text.size() > kMaxListBytes) break;  // ParseNodeList says so
  }
  return text;
}

std::string LineOrEnd(bool has_line, std::string_view line) {
  return has_line ? absl::StrFormat("'%s'", Excerpt(line)) : "missing";
}

}  // namespace

absl::StatusOr<NodeList> ParseNodeList(std::string_view text, const std::string& name,
                                       const NodeDefaults& defaults) {
  if (text.size() > kMaxListBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has over %d bytes; a node list was expected", name, kMaxListBytes));
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text = text.substr(kByteOrderMark.size());
  NodeListBuilder builder(name, defaults);
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = TakeLine(text);
    if (line.empty()) continue;
    const std::string location = absl::StrFormat("%s:%d", name, number);
    const absl::Status status = AddLine(line, location, builder);
    if (!status.ok()) {
      const std::string_view shown = line.substr(0, line.find_last_not_of(kBlanks) + 1);
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: '%s': %s", location, Excerpt(shown), std::string(status.message())));
    }
  }
  return std::move(builder).Build();
}

absl::StatusOr<NodeList> ReadNodeList(const std::string& path, const NodeDefaults& defaults) {
  BRAID_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseNodeList(text, path, defaults);
}

absl::StatusOr<NodeList> CheckNodeList(const std::vector<ClusterNode>& nodes,
                                       const std::string& name, const NodeDefaults& defaults) {
  NodeListBuilder builder(name, defaults);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string location = absl::StrFormat("node %d of %s", i, name);
    absl::Status status = CheckHost(nodes[i].host);
    if (status.ok() && nodes[i].devices.has_value()) {
      status = ParseDeviceSpec(nodes[i].devices->ToString()).status();
    }
    if (status.ok()) status = builder.Add(nodes[i], location);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %s", location, std::string(status.message())));
    }
  }
  return std::move(builder).Build();
}

std::string NodeListText(const std::vector<ClusterNode>& nodes) {
  std::string text;
  for (const ClusterNode& node : nodes) {
    text += FormatHostAndPort({node.host, node.port});
    if (node.devices.has_value()) text += " " + node.devices->ToString();
    text += "\n";
  }
  return text;
}

std::string DescribeDifference(const std::string& master_list, const std::string& node_list) {
  std::string_view master_rest = master_list;
  std::string_view node_rest = node_list;
  for (int number = 1;; ++number) {
    const bool master_has = !master_rest.empty();
    const bool node_has = !node_rest.empty();
    if (!master_has && !node_has) return "the node lists are equal";
    const std::string_view master_line = TakeLine(master_rest);
    const std::string_view node_line = TakeLine(node_rest);
    if (master_has == node_has && master_line == node_line) continue;
    return absl::StrFormat(
        "line %d of the node list (node %d) is %s in the master's list and %s in the joining "
        "node's",
        number, number - 1, LineOrEnd(master_has, master_line), LineOrEnd(node_has, node_line));
  }
}

}  // namespace braid
