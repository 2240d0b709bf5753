// What is known of how tensors lie best on CPUs, and on cards where these compute in narrow types:
// the table of the operators whose kernels there take operands in blocks of channels, and which of
// these may sum by Winograd's algorithm on CPUs. Cards have one block of all channels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// An attribute, a flag: a convolution in blocks of channels may go by Winograd's algorithm (Lavin
// and Gray, 2015) where that pays. Its windows are 3 x 3.
inline constexpr char kWinograd[] = "winograd";

// Which operand of a convolution holds the weights.
enum class Weights : uint8_t { kNone, kSecondInput, kOutput };

struct ChannelLayout {
  std::string op;
  ChannelOperands blocks = {};
  // Its kernel is faster with blocks, not only as fast: they are made for it.
  bool prefers_blocks = false;
  // The CPU has a kernel for one block of all channels that copies nothing.
  bool takes_whole_blocks = true;
  bool is_on_cards = true;  // cards have a kernel for one block of all channels
  Weights weights = Weights::kNone;
  std::vector<OpSample> samples = {};  // of plain operands; they are tried in blocks
};

// The table. Pointwise operators take blocks, too, where all their operands come so.
std::vector<ChannelLayout> ChannelLayouts();

// An operator that puts tensors one behind another along its attribute `axis`, or cuts one there.
// Where that is the axis of channels, blocks are to it what channels are.
struct ChannelMover {
  std::string op;
  std::string sizes = {};  // the attribute with the parts' sizes, if there is one
};
std::vector<ChannelMover> ChannelMovers();

// Operators that join the elements along their attribute `axes`. Where that of channels is not one
// and the others stay with size 1 (attribute `keep_dims`), blocks are to them what channels are.
std::vector<std::string> Reductions();

// The operator that permutes axes, by its attribute `perm`, and the one that cuts and joins them,
// to its attribute `shape`. Channels that are put last, or back, are so whether they came in blocks
// or not.
inline constexpr char kPermuting[] = "transpose", kReshaping[] = "reshape";
// The operator that repeats elements along axes of size 1, to its attribute `shape`. Where the axis
// of channels is none of them, blocks are to it what channels are.
inline constexpr char kSpreading[] = "broadcast_to";

// Whether devices of this type have the CPU's layouts.
bool HasCpuLayouts(std::string_view device_type);

// `plain` with the definitions of the table's operators that take blocks, too; those that are not
// in `plain` are left out.
OpRegistry WithChannelLayouts(const OpRegistry& plain);

}  // namespace braid::compiler
