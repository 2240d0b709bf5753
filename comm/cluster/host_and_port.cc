#include "comm/cluster/host_and_port.h"

#include <arpa/inet.h>

#include <optional>

#include "absl/strings/str_format.h"
#include "comm/cluster/plain_text.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr std::string_view kNameCharacters =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";

bool ConsistsOf(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// With or without a scope: "fe80::1%eth0".
bool IsIpv6(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos) {
    const std::string_view scope = text.substr(percent + 1);
    if (scope.empty() || !ConsistsOf(scope, kNameCharacters)) return false;
    text = text.substr(0, percent);
  }
  in6_addr address;
  return ConsistsOf(text, "0123456789abcdefABCDEF:.") &&
         inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

bool IsIpv4(std::string_view text) {
  in_addr address;
  return ConsistsOf(text, "0123456789.") &&
         inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

absl::Status WrongHost(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrFormat("'%s' %s", Excerpt(text), why));
}

}  // namespace

absl::Status CheckHost(std::string_view host) {
  constexpr size_t kMaxNameBytes = 253;  // RFC 1035, without the root's dot
  if (IsIpv6(host) || IsIpv4(host)) return absl::OkStatus();
  if (host.empty()) return WrongHost(host, "is no host name or address");
  if (ConsistsOf(host, "0123456789.")) {
    return WrongHost(host, "is no IPv4 address; four numbers up to 255 were expected");
  }
  if (host.find_first_of(":[]") != std::string_view::npos) {
    return WrongHost(host, "is no host name or address; a port stands apart, and no brackets here");
  }
  if (host.size() > kMaxNameBytes || !ConsistsOf(host, kNameCharacters) || host[0] == '-' ||
      host[0] == '.') {
    return WrongHost(host, "is no host name or address");
  }
  return absl::OkStatus();
}

absl::StatusOr<HostAndPort> ParseHostAndPort(std::string_view text) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return WrongHost(text, "has no closing bracket; [fd00::3] or [fd00::3]:9988 was expected");
    }
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!IsIpv6(host)) return WrongHost(text, "has no IPv6 address in its brackets");
    if (!rest.empty() && rest[0] != ':') {
      return WrongHost(text, "goes on after its bracket; [fd00::3]:9988 was expected");
    }
    has_port = !rest.empty();
    port = has_port ? rest.substr(1) : rest;
  } else {
    if (text.find_first_of("[]") != std::string_view::npos) {
      return WrongHost(text, "has a bracket that none opened; [fd00::3]:9988 was expected");
    }
    const size_t colon = text.find(':');
    if (colon != text.rfind(':')) {
      return WrongHost(text,
                       "has several colons; an IPv6 address is written in brackets: "
                       "[fd00::3] or [fd00::3]:9988");
    }
    host = text.substr(0, colon);
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
    BRAID_RETURN_IF_ERROR(CheckHost(host));
  }
  HostAndPort address{.host = std::string(host)};
  if (!has_port) return address;
  const std::optional<int> number = ParseDecimal(port, 1, 65535);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no port; a number from 1 to 65535 was expected in '%s'",
                        Excerpt(port), Excerpt(text)));
  }
  address.port = static_cast<uint16_t>(*number);
  return address;
}

std::string FormatHostAndPort(const HostAndPort& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + address.host + "]" : address.host;
  return address.port == 0 ? host : absl::StrFormat("%s:%d", host, address.port);
}

}  // namespace braid
