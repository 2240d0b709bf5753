// The list of transports, best first: a new one is a file and a line here.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "comm/little_endian.h"
#include "comm/loopback_transport.h"
#include "comm/rdma/rdma_transport.h"
#include "comm/shm/shm_transport.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/transport.h"

namespace braid {

namespace {

struct ListedTransport {
  const char* name;
  std::unique_ptr<Transport> (*make)(const TransportOptions& options);
  bool is_usual;  // else only where it is asked for by name
  bool uses_shared_heap;
};

// rdma was tried with devices in software only.
constexpr ListedTransport kTransports[] = {
    {"shm", &MakeShmTransport, true, true},
    {"rdma", &MakeRdmaTransport, false, true},
    {"tcp", &MakeTcpTransport, true, false},
};

bool IsAsked(const ListedTransport& listed, const TransportOptions& options) {
  return options.only.empty() ? listed.is_usual : NamesTransport(options.only, listed.name);
}

}  // namespace

bool NamesTransport(const std::string& names, std::string_view name) {
  const std::vector<std::string> all = absl::StrSplit(names, ',');
  return std::ranges::find(all, name) != all.end();
}

absl::Status CheckTransportNames(std::string_view what, const std::string& names) {
  std::vector<std::string> known;
  for (const ListedTransport& listed : kTransports) known.emplace_back(listed.name);
  if (names.empty()) return absl::OkStatus();
  for (const auto name : absl::StrSplit(names, ',')) {
    if (std::ranges::find(known, std::string(name)) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s=%s; one of these was expected, or several with commas between: %s",
                        std::string(what), names, absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

bool UsesSharedHeap(const TransportOptions& options) {
  return options.reactor != nullptr && options.network == SystemNetwork() &&
         std::ranges::any_of(kTransports, [&](const ListedTransport& listed) {
           return listed.uses_shared_heap && IsAsked(listed, options);
         });
}

std::vector<std::unique_ptr<Transport>> MakeTransports(const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  if (options.loopback != nullptr && (options.only.empty() || options.only == kLoopback)) {
    transports.push_back(MakeLoopbackTransport(options.node, options.loopback));
  }
  for (const ListedTransport& listed : kTransports) {
    if (IsAsked(listed, options)) transports.push_back(listed.make(options));
  }
  return transports;
}

void PutMemoryKey(std::span<std::byte> bytes, size_t at, const MemoryKey& key) {
  PutLittleEndian(bytes, at, key.token);
  PutLittleEndian(bytes, at + 8, key.base);
  PutLittleEndian(bytes, at + 16, key.bytes);
}

MemoryKey GetMemoryKey(std::span<const std::byte> bytes, size_t at) {
  return {.token = GetLittleEndian<uint64_t>(bytes, at),
          .base = GetLittleEndian<uint64_t>(bytes, at + 8),
          .bytes = GetLittleEndian<uint64_t>(bytes, at + 16)};
}

}  // namespace braid
