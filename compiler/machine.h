// What the machines of a cluster can do: rates of devices and of the links between them. The one
// source of the compiler's times; a value that is written to and read from a text file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/placement.h"

namespace braid::compiler {

// Of one device. The defaults are one CPU core.
struct DeviceRates {
  std::map<DType, double> flops = {{DType::kF32, 1e11}};  // a second, of products of that type
  double memory = 1e10;                                   // bytes a second, read and written

  friend bool operator==(const DeviceRates&, const DeviceRates&) = default;
};

// How far two devices are from each other, nearest first.
enum class LinkClass : uint8_t {
  kProcess,  // devices of one node
  kHost,     // of two nodes on one host
  kNetwork,  // of two hosts
};
constexpr int kNumLinkClasses = 3;
std::string_view LinkClassName(LinkClass link);  // "process", "host", "network"

struct LinkRates {
  double latency = 2e-6;    // seconds of a message
  double bandwidth = 1e10;  // bytes a second, each way

  friend bool operator==(const LinkRates&, const LinkRates&) = default;
};

// The default is for machines that nobody measured: all links are alike, so that plans made with it
// do not depend on where the nodes are.
struct Machine {
  std::map<std::string, DeviceRates> devices = {{"cpu", {}}};  // by kind
  std::array<LinkRates, kNumLinkClasses> links = {};           // by LinkClass
  // Whether somebody measured these rates or wrote them down. Only then do routes depend on how
  // many messages an algorithm takes; else they go by the fewest that any could do with
  // (BoxingCost::least_messages), and so do not change with the table of algorithms.
  bool is_known = false;
  std::string origin = "default";  // for reports: whose rates these are
  // The host of each node, by any numbers; of a node beyond the end, one of its own. No part of the
  // text.
  std::vector<int> hosts = {};

  const LinkRates& link(LinkClass link) const { return links[static_cast<size_t>(link)]; }
  // Those of f32 if there are none for `dtype`; the defaults of a kind that is not there.
  double FlopsPerSecond(const std::string& kind, DType dtype) const;
  double MemoryBytesPerSecond(const std::string& kind) const;
  // Seconds on one device, which is bound by arithmetic or by memory.
  struct Work {
    std::string kind;
    DType dtype = DType::kF32;
    double flops = 0, bytes = 0;
  };
  double WorkSeconds(const Work& work) const;
  // Of messages one after another that carry `bytes` in all.
  double TransferSeconds(LinkClass link, double messages, double bytes) const;
  // The same in units of 0.1 ns: whole numbers, which add up exactly.
  int64_t TransferTicks(LinkClass link, int64_t messages, int64_t bytes) const;

  uint32_t HostOf(int node) const;  // by any numbers
  LinkClass LinkOf(int node, int other_node) const;
  // The farthest of the links between any devices of both.
  LinkClass LinkAcross(const Placement& source, const Placement& destination) const;
  // The farthest between ranks that differ in dimension `dim` of the hierarchy only.
  LinkClass LinkAlong(const Placement& placement, int dim) const;

  // A line a fact, e.g. "device cpu f32 1e11 flop/s" or "link host latency 2e-6 s". Parse reads it
  // back exactly.
  std::string ToString() const;
  // Facts that are not given keep their defaults; what follows a '#' is a comment. INVALID_ARGUMENT
  // naming `file` and the line, what stands there and what was expected. The result is known, of
  // the origin `file`.
  static absl::StatusOr<Machine> Parse(std::string_view text, const std::string& file);

  friend bool operator==(const Machine&, const Machine&) = default;
};

// The slower of both, rate by rate: a step takes as long as its slowest member.
Machine SlowerOf(const Machine& a, const Machine& b);

}  // namespace braid::compiler
