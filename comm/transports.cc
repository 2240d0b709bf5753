// The list of transports, best first: a new one is a file and a line here.
#include "comm/little_endian.h"
#include "comm/loopback_transport.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/transport.h"

namespace braid {

std::vector<std::unique_ptr<Transport>> MakeTransports(const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  if (options.loopback) transports.push_back(MakeLoopbackTransport(options.node, options.loopback));
  transports.push_back(MakeTcpTransport(options));
  std::erase_if(transports, [&](const std::unique_ptr<Transport>& transport) {
    return !options.only.empty() && transport->name() != options.only;
  });
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
