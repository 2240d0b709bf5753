#include "api/tool/status.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "api/tool/secret_flag.h"
#include "comm/cluster/host_and_port.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/control/rendezvous.h"
#include "comm/control/secret.h"
#include "comm/control/session_file.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"
#include "runtime/base/status.h"

ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "How long to wait for the answer");

namespace braid {
namespace {

absl::StatusOr<std::string> Ask(const std::string& address, const std::string& secret) {
  BRAID_ASSIGN_OR_RETURN(const HostAndPort master, ParseHostAndPort(address));
  const uint16_t port = master.port == 0 ? kDefaultControlPort : master.port;
  BRAID_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, ResolveHost(master.host, port));
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  RendezvousOptions options;
  options.environment = environment.get();
  options.secret = secret;
  options.join_timeout = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_timeout));
  RendezvousClient client(std::move(options), std::move(addresses), SocketAddress());
  return client.AskStatus();
}

// Of one that may have ended meanwhile.
std::string TextOf(const SessionPlace& session) {
  const absl::StatusOr<std::string> text = Ask(session.address, session.secret);
  return absl::StrFormat("process %d at %s: %s\n%s", session.pid, session.address, session.command,
                         text.ok() ? *text : std::string(text.status().message()) + "\n");
}

absl::StatusOr<std::string> StatusOfSessions(const ToolArguments& arguments) {
  if (arguments.words.size() > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d arguments; one was expected, the master's HOST:PORT, or none", arguments.words.size()));
  }
  if (!arguments.words.empty()) {
    BRAID_ASSIGN_OR_RETURN(const std::string secret,
                           ReadSecret(absl::GetFlag(FLAGS_auth_token_file), EnvironmentVariable));
    return Ask(arguments.words[0], secret);
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<SessionPlace> sessions, FindSessions());
  if (sessions.empty()) {
    return absl::NotFoundError(
        "no session of this user has its master on this machine; of others give the master's "
        "HOST:PORT, and BRAID_AUTH_TOKEN or --auth_token_file");
  }
  std::vector<std::string> texts;
  for (const SessionPlace& session : sessions) texts.push_back(TextOf(session));
  return absl::StrJoin(texts, "\n");
}

int Run(const ToolArguments& arguments) {
  const absl::StatusOr<std::string> text = StatusOfSessions(arguments);
  if (!text.ok()) {
    std::cerr << "error: braid status: " << text.status().message() << "\n";
    return 1;
  }
  std::cout << *text;
  return 0;
}

}  // namespace

Subcommand StatusSubcommand() {
  return {.name = "status",
          .summary = "what a running session does and waits for",
          .usage =
              "braid status [FLAGS] [HOST:PORT]\n\nHOST:PORT is the master's control port. "
              "Without it: this user's sessions whose masters are on\nthis machine.",
          .files = {"api/tool/status.cc", kSecretFlagFile},
          .run = Run};
}

}  // namespace braid
