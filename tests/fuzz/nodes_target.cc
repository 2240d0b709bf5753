// What users and launchers write about nodes: the node list file, devices, addresses, the
// launcher's environment.
#include <glog/logging.h>

#include <map>
#include <optional>
#include <string>

#include "comm/cluster/device_spec.h"
#include "comm/cluster/host_and_port.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/network/socket.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

// What was read and written again is read as the same.
void ReadList(const std::string& text) {
  const auto list = ParseNodeList(text, "fuzz", {});
  if (!list.ok()) return;
  const std::string canonical = NodeListText(list->nodes);
  const auto again = ParseNodeList(canonical, "fuzz", {});
  CHECK(again.ok()) << again.status() << "\n" << canonical;
  CHECK(again->nodes == list->nodes) << canonical;
  CHECK(CheckNodeList(list->nodes, "fuzz", {}).ok()) << canonical;
  DescribeDifference(canonical, text);
}

void ReadDevices(const std::string& text) {
  const auto devices = ParseDeviceSpec(text);
  if (devices.ok()) CHECK(*ParseDeviceSpec(devices->ToString()) == *devices);
}

void ReadAddress(const std::string& text) {
  const auto address = ParseHostAndPort(text);
  if (address.ok()) CHECK(*ParseHostAndPort(FormatHostAndPort(*address)) == *address) << text;
  CheckHost(text).IgnoreError();
  const auto socket = SocketAddress::Parse(text);
  if (socket.ok()) CHECK(SocketAddress::Parse(socket->ToString()).ok()) << text;
}

// Lines of NAME=value.
void ReadEnvironment(const std::string& text) {
  std::map<std::string, std::string> variables;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (const size_t equals = line.find('='); equals != std::string::npos) {
      variables[line.substr(0, equals)] = line.substr(equals + 1);
    }
    at = end + 1;
  }
  const EnvironmentVariables env = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  FindLauncher(env).IgnoreError();
  FindBraidNodeRank(env).IgnoreError();
  DescribeMissingSrun(env);
}

void Run(Bytes input) {
  InputReader reader(input);
  const uint8_t what = reader.Byte();
  const std::string text = TextOf(reader.Rest());
  switch (what) {
    case 'd':
      return ReadDevices(text);
    case 'a':
      return ReadAddress(text);
    case 'e':
      return ReadEnvironment(text);
    case 's':
      return FirstSlurmHost(text).IgnoreError();
    default:
      return ReadList(text);
  }
}

}  // namespace

Target NodesTarget() { return {.name = "nodes", .run = Run}; }

}  // namespace braid::fuzz
