#include "compiler/logical/channel_layout.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/channel_layouts.h"
#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

std::string LaidOut(const std::string& text, const ChannelLayoutOptions& options = {}) {
  return Rewritten(text, [&](const LogicalGraph& graph) { return LayOutChannels(graph, options); });
}

constexpr char kAttrs[] =
    "{dilations=[1, 1] groups=1 pads_begin=[1, 1] pads_end=[1, 1] strides=[1, 1]}";

// A chain of two convolutions on one device of a kind.
std::string Chain(const std::string& device) {
  return absl::StrReplaceAll(absl::StrCat(R"(
%0:f32[4, 3, 8, 8] = input "x" () {dtype=f32 shape=[4, 3, 8, 8]} on=cpu[1]{0.0}
%1:f32[32, 3, 3, 3] = variable "w1" () {dtype=f32 shape=[32, 3, 3, 3]} on=cpu[1]{0.0}
%2:f32[48, 32, 3, 3] = variable "w2" () {dtype=f32 shape=[48, 32, 3, 3]} on=cpu[1]{0.0}
%3:f32[4, 32, 8, 8] = conv "a" (%0, %1) )",
                                          kAttrs, R"( on=cpu[1]{0.0}
%4:f32[4, 32, 8, 8] = relu "b" (%3) on=cpu[1]{0.0}
%5:f32[4, 48, 8, 8] = conv "c" (%4, %2) )",
                                          kAttrs, R"( on=cpu[1]{0.0}
%6:f32[4, 3072] = reshape "d" (%5) {shape=[4, 3072]} on=cpu[1]{0.0}
)"),
                             {{"cpu[1]{0.0}", device}});
}

// The image has three channels and stays plain; what leaves the chain is made plain.
TEST(ChannelLayout, KeepsAChainInBlocks) {
  const std::string blocked = LaidOut(Chain("cpu[1]{0.0}"));
  for (const char* line : {
           "%3:f32[4, 2, 8, 8, 16] = conv \"a\" (%0, %1) {blocked_inputs=[] blocked_outputs=[0] "
           "channel_block=16 ",
           "%4:f32[4, 2, 8, 8, 16] = relu \"b\" (%3) on",
           "%5:f32[4, 3, 8, 8, 16] = conv \"c\" (%4, %2) {blocked_inputs=[0] blocked_outputs=[0] ",
           "%7:f32[4, 3, 16, 8, 8] = transpose \"c.transpose\" (%5) {perm=[0, 1, 4, 2, 3]}",
           "%8:f32[4, 48, 8, 8] = reshape \"c.reshape\" (%7) {shape=[4, 48, 8, 8]}",
           "%6:f32[4, 3072] = reshape \"d\" (%8)",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
}

// Two branches that are put side by side, scaled by a number per channel and one for all, and cut.
constexpr char kBranches[] = R"(
%0:f32[4, 3, 8, 8] = input "x" () {dtype=f32 shape=[4, 3, 8, 8]} on=cpu[1]{0.0}
%1:f32[32, 3, 3, 3] = variable "w1" () {dtype=f32 shape=[32, 3, 3, 3]} on=cpu[1]{0.0}
%2:f32[16, 3, 3, 3] = variable "w2" () {dtype=f32 shape=[16, 3, 3, 3]} on=cpu[1]{0.0}
%3:f32[16, 16, 3, 3] = variable "w3" () {dtype=f32 shape=[16, 16, 3, 3]} on=cpu[1]{0.0}
%4:f32[4, 32, 8, 8] = conv "a" (%0, %1) ATTRS on=cpu[1]{0.0}
%5:f32[4, 16, 8, 8] = conv "b" (%0, %2) ATTRS on=cpu[1]{0.0}
%6:f32[4, 48, 8, 8] = concat "join" (%4, %5) {axis=1} on=cpu[1]{0.0}
%7:f32[1, 48, 1, 1] = variable "scale" () {dtype=f32 shape=[1, 48, 1, 1]} on=cpu[1]{0.0}
%8:f32[4, 48, 8, 8] = mul "scaled" (%6, %7) on=cpu[1]{0.0}
%9:f32[] = variable "factor" () {dtype=f32 shape=[]} on=cpu[1]{0.0}
%10:f32[4, 48, 8, 8] = mul "again" (%8, %9) on=cpu[1]{0.0}
%11:f32[4, 32, 8, 8], %12:f32[4, 16, 8, 8] = split "cut" (%10) {axis=1 sizes=[32, 16]} on=cpu[1]{0.0}
%13:f32[4, 16, 8, 8] = conv "c" (%12, %3) ATTRS on=cpu[1]{0.0}
)";
// What follows, so that convolutions are many beside what moves channels.
constexpr char kMoreConvolutions[] = R"(
%14:f32[28, 16, 3, 3] = variable "w4" () {dtype=f32 shape=[28, 16, 3, 3]} on=cpu[1]{0.0}
%15:f32[28, 28, 3, 3] = variable "w5" () {dtype=f32 shape=[28, 28, 3, 3]} on=cpu[1]{0.0}
%16:f32[4, 28, 8, 8] = conv "d" (%13, %14) ATTRS on=cpu[1]{0.0}
%17:f32[4, 28, 8, 8] = conv "e" (%16, %15) ATTRS on=cpu[1]{0.0}
%18:f32[4, 28, 8, 8] = conv "f" (%17, %15) ATTRS on=cpu[1]{0.0}
)";
constexpr char kNormBehind[] = R"(
%19:f32[28] = variable "mean" () {dtype=f32 shape=[28]} on=cpu[1]{0.0}
%20:f32[28] = variable "variance" () {dtype=f32 shape=[28]} on=cpu[1]{0.0}
%21:f32[28] = variable "gamma" () {dtype=f32 shape=[28]} on=cpu[1]{0.0}
%22:f32[28] = variable "beta" () {dtype=f32 shape=[28]} on=cpu[1]{0.0}
%23:f32[4, 28, 8, 8] = batch_norm "n" (%18, %19, %20, %21, %22) {epsilon=0.001 training=false} on=cpu[1]{0.0}
)";

TEST(ChannelLayout, GoesThroughWhatMovesAndScalesChannels) {
  const std::string text =
      absl::StrReplaceAll(kBranches, {{"ATTRS", kAttrs}, {", 8, 8]", ", 2, 2]"}});
  const std::string blocked = LaidOut(text);
  for (const char* line : {
           "%6:f32[4, 3, 2, 2, 16] = concat \"join\" (%4, %5) {axis=1}",
           "= reshape \"scale.reshape\" (%7)",
           "%10:f32[4, 3, 2, 2, 16] = mul \"again\" (%8, %9)",
           "%11:f32[4, 2, 2, 2, 16], %12:f32[4, 1, 2, 2, 16] = split \"cut\" (%10) {axis=1 "
           "sizes=[2, 1]}",
           "= conv \"c\" (%12, %3) {blocked_inputs=[0] ",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
  // Not where a part has no whole blocks.
  const std::string plain =
      LaidOut(absl::StrReplaceAll(text, {{"[32, 3, 3, 3]", "[36, 3, 3, 3]"},
                                         {"[4, 32, 2, 2]", "[4, 36, 2, 2]"},
                                         {"[4, 48, 2, 2]", "[4, 52, 2, 2]"},
                                         {"[1, 48, 1, 1]", "[1, 52, 1, 1]"},
                                         {"sizes=[32, 16]", "sizes=[36, 16]"}}));
  EXPECT_NE(plain.find("%6:f32[4, 52, 2, 2] = concat \"join\" (%4, %5) {axis=1}"),
            std::string::npos)
      << plain;
}

// Of narrow blocks more channels are a multiple.
TEST(ChannelLayout, BlocksMayBeNarrow) {
  const std::string text =
      absl::StrReplaceAll(Chain("cpu[1]{0.0}"), {{"[32, 3, 3, 3]", "[40, 3, 3, 3]"},
                                                 {"[48, 32, 3, 3]", "[48, 40, 3, 3]"},
                                                 {"[4, 32, 8, 8]", "[4, 40, 2, 2]"},
                                                 {", 8, 8]", ", 2, 2]"},
                                                 {"3072]", "192]"}});
  const std::string blocked = LaidOut(text, {.channel_block = kNarrowBlock});
  for (const char* line : {
           "%3:f32[4, 5, 2, 2, 8] = conv \"a\" (%0, %1) {blocked_inputs=[] blocked_outputs=[0] "
           "channel_block=8 ",
           "%4:f32[4, 5, 2, 2, 8] = relu \"b\" (%3) on",
           "%5:f32[4, 6, 2, 2, 8] = conv \"c\" (%4, %2) {blocked_inputs=[0] blocked_outputs=[0] ",
           "%7:f32[4, 6, 8, 2, 2] = transpose \"c.transpose\" (%5) {perm=[0, 1, 4, 2, 3]}",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
  EXPECT_EQ(LaidOut(text, {.may_fit_blocks = false}), text) << "40 channels are no blocks of 16";
  EXPECT_EQ(LaidOut(text), blocked) << "both convolutions would reorder";
}

// The share of the work that is on channels of which wide blocks are no multiple decides: the
// second convolution's is 24 parts of 40, then of 88.
TEST(ChannelLayout, AChainHasBlocksOfOneWidth) {
  const auto laid_out = [](int channels) {
    return LaidOut(absl::StrReplaceAll(R"(
%0:f32[4, IN, 1, 2] = input "x" () {dtype=f32 shape=[4, IN, 1, 2]} on=cpu[1]{0.0}
%1:f32[32, IN, 3, 3] = variable "w1" () {dtype=f32 shape=[32, IN, 3, 3]} on=cpu[1]{0.0}
%2:f32[24, 32, 3, 3] = variable "w2" () {dtype=f32 shape=[24, 32, 3, 3]} on=cpu[1]{0.0}
%3:f32[4, 32, 1, 2] = conv "a" (%0, %1) ATTRS on=cpu[1]{0.0}
%4:f32[4, 32, 1, 2] = relu "b" (%3) on=cpu[1]{0.0}
%5:f32[4, 24, 1, 2] = conv "c" (%4, %2) ATTRS on=cpu[1]{0.0}
)",
                                       {{"IN", absl::StrCat(channels)}, {"ATTRS", kAttrs}}));
  };
  const std::string narrow = laid_out(16), wide = laid_out(64);
  EXPECT_NE(narrow.find("%4:f32[4, 4, 1, 2, 8] = relu"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("%5:f32[4, 3, 1, 2, 8] = conv"), std::string::npos) << narrow;
  EXPECT_NE(wide.find("%4:f32[4, 2, 1, 2, 16] = relu"), std::string::npos) << wide;
  EXPECT_NE(wide.find("%5:f32[4, 24, 1, 2] = conv"), std::string::npos) << wide;
}

// A mean over space keeps the blocks, and of one pixel nothing has to be moved. Channels that are
// put last are put there from blocks, and back into them; a number per channel needs no axis of the
// batch. Where one block may have all channels, they are last already.
constexpr char kMovedChannels[] = R"(
%0:f32[4, 3, 8, 8] = input "x" () {dtype=f32 shape=[4, 3, 8, 8]} on=cpu[1]{0.0}
%1:f32[32, 3, 3, 3] = variable "w1" () {dtype=f32 shape=[32, 3, 3, 3]} on=cpu[1]{0.0}
%2:f32[32, 32, 3, 3] = variable "w2" () {dtype=f32 shape=[32, 32, 3, 3]} on=cpu[1]{0.0}
%3:f32[4, 32, 8, 8] = conv "a" (%0, %1) ATTRS on=cpu[1]{0.0}
%4:f32[4, 32, 1, 1] = reduce_mean "mean" (%3) {axes=[2, 3] keep_dims=true} on=cpu[1]{0.0}
%5:f32[4, 32, 8, 8] = mul "scaled" (%3, %4) on=cpu[1]{0.0}
%6:f32[4, 8, 8, 32] = transpose "last" (%5) {perm=[0, 2, 3, 1]} on=cpu[1]{0.0}
%7:f32[4, 8, 8, 32] = softmax "s" (%6) on=cpu[1]{0.0}
%8:f32[4, 32, 8, 8] = transpose "second" (%7) {perm=[0, 3, 1, 2]} on=cpu[1]{0.0}
%9:f32[32, 1, 1] = variable "scale" () {dtype=f32 shape=[32, 1, 1]} on=cpu[1]{0.0}
%10:f32[4, 32, 8, 8] = mul "by" (%9, %8) on=cpu[1]{0.0}
%11:f32[4, 32, 8, 8] = conv "c" (%10, %2) ATTRS on=cpu[1]{0.0}
%12:f32[4, 32, 1, 1] = reduce_max "most" (%11) {axes=[2, 3] keep_dims=true} on=cpu[1]{0.0}
%13:f32[4, 32] = reshape "flat" (%12) {shape=[4, 32]} on=cpu[1]{0.0}
)";

TEST(ChannelLayout, GoesThroughMeansAndMovedChannels) {
  const std::string text = absl::StrReplaceAll(kMovedChannels, {{"ATTRS", kAttrs}});
  const std::string blocked = LaidOut(text, {.may_fit_blocks = false});
  for (const char* line : {
           "%4:f32[4, 2, 1, 1, 16] = reduce_mean \"mean\" (%3) {axes=[2, 3] keep_dims=true}",
           "%5:f32[4, 2, 8, 8, 16] = mul \"scaled\" (%3, %4)",
           "f32[4, 8, 8, 2, 16] = transpose \"last.transpose\" (%5) {perm=[0, 2, 3, 1, 4]}",
           "%6:f32[4, 8, 8, 32] = reshape \"last\" (%",
           "f32[4, 8, 8, 2, 16] = reshape \"s.reshape\" (%7) {shape=[4, 8, 8, 2, 16]}",
           "%8:f32[4, 2, 8, 8, 16] = transpose \"second\" (%",
           "f32[1, 2, 1, 1, 16] = reshape \"scale.reshape\" (%9)",
           "%12:f32[4, 2, 1, 1, 16] = reduce_max \"most\" (%11)",
           "f32[4, 32, 1, 1] = reshape \"most.reshape\" (%12) {shape=[4, 32, 1, 1]}",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
  const std::string whole = LaidOut(text);
  for (const char* line : {
           "%4:f32[4, 1, 1, 1, 32] = reduce_mean \"mean\" (%3) {axes=[2, 3] keep_dims=true}",
           "%6:f32[4, 8, 8, 32] = reshape \"last\" (%5) {shape=[4, 8, 8, 32]}",
           "%8:f32[4, 1, 8, 8, 32] = reshape \"second\" (%7) {shape=[4, 1, 8, 8, 32]}",
           "f32[1, 1, 1, 1, 32] = reshape \"scale.reshape\" (%9)",
           "%11:f32[4, 1, 8, 8, 32] = conv \"c\" (%10, %2) {blocked_inputs=[0] blocked_outputs=[0] "
           "channel_block=-1 ",
       }) {
    EXPECT_NE(whole.find(line), std::string::npos) << line << whole;
  }
}

// Large convolutions of channels that wide blocks do not fit have all channels in one block: unless
// they are small, on several devices, few beside what moves channels, or beside a norm. The first
// one's image is reordered by its kernel.
TEST(ChannelLayout, LargeConvolutionsOfOddChannelsHaveOneBlock) {
  const auto laid_out = [](const char* size, const char* device,
                           const ChannelLayoutOptions& options,
                           const std::string& more = kMoreConvolutions) {
    const std::string text =
        absl::StrReplaceAll(absl::StrCat(kBranches, more), {{"ATTRS", kAttrs},
                                                            {"[32, 3, 3, 3]", "[28, 3, 3, 3]"},
                                                            {"[4, 32, 8, 8]", "[4, 28, 8, 8]"},
                                                            {"[4, 48, 8, 8]", "[4, 44, 8, 8]"},
                                                            {"[1, 48, 1, 1]", "[1, 44, 1, 1]"},
                                                            {"sizes=[32, 16]", "sizes=[28, 16]"}});
    return LaidOut(absl::StrReplaceAll(text, {{", 8, 8]", size}, {"cpu[1]{0.0}", device}}),
                   options);
  };
  const std::string whole = laid_out(", 24, 24]", "cpu[1]{0.0}", {});
  for (const char* line : {
           "%4:f32[4, 1, 24, 24, 28] = conv \"a\" (%0, %1) {blocked_inputs=[] blocked_outputs=[0] "
           "channel_block=-1 ",
           "%6:f32[4, 1, 24, 24, 44] = concat \"join\" (%4, %5) {axis=4}",
           "%11:f32[4, 1, 24, 24, 28], %12:f32[4, 1, 24, 24, 16] = split \"cut\" (%10) {axis=4 "
           "sizes=[28, 16]}",
           "= conv \"c\" (%12, %3) {blocked_inputs=[0] ",
       }) {
    EXPECT_NE(whole.find(line), std::string::npos) << line << whole;
  }
  for (const std::string& other : {
           laid_out(", 2, 2]", "cpu[1]{0.0}", {}),
           laid_out(", 24, 24]", "cpu[1]{0.0}", {}, ""),
           laid_out(", 24, 24]", "cpu[1]{0.0}", {}, absl::StrCat(kMoreConvolutions, kNormBehind)),
           laid_out(", 24, 24]", "cpu[2]{0.0 0.1}", {}),
           laid_out(", 24, 24]", "cpu[1]{0.0}", {.may_fit_blocks = false}),
           laid_out(", 24, 24]", "cpu[1]{0.0}", {.channel_block = kNarrowBlock}),
       }) {
    EXPECT_NE(other.find("= conv \"c\""), std::string::npos) << other;
    EXPECT_EQ(other.find("channel_block=-1"), std::string::npos) << other;
  }
}

// Products of bytes, and what stands between them, have one block of all channels.
constexpr char kBytes[] = R"(
%0:u8[4, 8, 8, 8] = input "x" () {dtype=u8 shape=[4, 8, 8, 8]} on=cpu[1]{0.0}
%1:i8[32, 8, 3, 3] = variable "w1" () {dtype=i8 shape=[32, 8, 3, 3]} on=cpu[1]{0.0}
%2:i8[32, 32, 3, 3] = variable "w2" () {dtype=i8 shape=[32, 32, 3, 3]} on=cpu[1]{0.0}
%3:f32[] = variable "scale" () {dtype=f32 shape=[]} on=cpu[1]{0.0}
%4:i32[4, 32, 8, 8] = conv_integer "a" (%0, %1) ATTRS on=cpu[1]{0.0}
%5:f32[4, 32, 8, 8] = cast "real" (%4) {dtype=f32} on=cpu[1]{0.0}
%6:f32[4, 32, 8, 8] = mul "scaled" (%5, %3) on=cpu[1]{0.0}
%7:u8[4, 32, 8, 8] = cast "again" (%6) {dtype=u8} on=cpu[1]{0.0}
%8:i32[4, 32, 8, 8] = conv_integer "b" (%7, %2) ATTRS on=cpu[1]{0.0}
)";

TEST(ChannelLayout, BytesHaveOneBlock) {
  const std::string text = absl::StrReplaceAll(kBytes, {{"ATTRS", kAttrs}});
  const std::string blocked = LaidOut(text);
  for (const char* line : {
           "%4:i32[4, 1, 8, 8, 32] = conv_integer \"a\"",
           "%6:f32[4, 1, 8, 8, 32] = mul \"scaled\" (%5, %3)",
           "%7:u8[4, 1, 8, 8, 32] = cast \"again\" (%6)",
           "%8:i32[4, 1, 8, 8, 32] = conv_integer \"b\" (%7, %2) {blocked_inputs=[0] "
           "blocked_outputs=[0] channel_block=-1 ",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
  const std::string on_two = absl::StrReplaceAll(text, {{"cpu[1]{0.0}", "cpu[2]{0.0 0.1}"}});
  EXPECT_EQ(LaidOut(on_two), on_two);
}

// Reorders would cost more than they save; f64 and what the user laid out stay as they are.
TEST(ChannelLayout, LeavesOthersAsTheyAre) {
  for (const auto& [dtype, hint] : {std::pair{"f32", ""}, {"f64", ""}, {"f32", " hint=(S(0))"}}) {
    const std::string text = absl::StrCat(
        "\n%0:", dtype, "[4, 32, 8, 8] = input \"x\" () {dtype=", dtype,
        " shape=[4, 32, 8, 8]} on=cpu[1]{0.0}\n%1:", dtype,
        "[32, 32, 3, 3] = variable \"w\" () {dtype=", dtype,
        " shape=[32, 32, 3, 3]} on=cpu[1]{0.0}\n%2:", dtype, "[4, 32, 8, 8] = conv \"a\" (%0, %1) ",
        kAttrs, " on=cpu[1]{0.0}", hint, "\n%3:", dtype,
        "[4, 2048] = reshape \"b\" (%2) {shape=[4, 2048]} on=cpu[1]{0.0}\n");
    EXPECT_EQ(LaidOut(text), text);
  }
}

TEST(ChannelLayout, IsForCpusOnly) {
  const std::string text = Chain("gpu[1]{0.0}");
  EXPECT_EQ(LaidOut(text), text);
}

// What comes from another kind of device comes plain, and what goes there is made plain where it
// was made.
TEST(ChannelLayout, ReordersOnCpusOnly) {
  std::string text = Chain("cpu[1]{0.0}");
  text = absl::StrReplaceAll(
      text, {{"= relu \"b\" (%3) on=cpu[1]{0.0}", "= relu \"b\" (%3) on=gpu[1]{0.1}"}});
  const std::string layout = LaidOut(text);
  EXPECT_EQ(layout, text) << "each convolution is a chain of its own, too short to gain";
}

// Where the kernel is 3 x 3, and unless the user wants the sums as they stand.
// Devices that want them last get one block of all channels, also of images with three; no
// convolution is transformed there.
TEST(ChannelLayout, PutsChannelsLastForDevicesThatWantThat) {
  const ChannelLayoutOptions options = {.may_fit_blocks = false,
                                        .puts_channels_last = [](const Placement& placement) {
                                          return placement.device_type() == "card";
                                        }};
  // One more convolution, so that it gains, and one that is given the mean again.
  const std::string text =
      absl::StrReplaceAll(absl::StrCat(Chain("cpu[1]{0.0}"), R"(
%7:f32[48, 48, 3, 3] = variable "w3" () {dtype=f32 shape=[48, 48, 3, 3]} on=cpu[1]{0.0}
%8:f32[4, 48, 8, 8] = conv "e" (%5, %7) ATTRS on=cpu[1]{0.0}
%9:f32[4, 48, 1, 1] = reduce_mean "mean" (%8) {axes=[2, 3] keep_dims=true} on=cpu[1]{0.0}
%10:f32[4, 48, 8, 8] = broadcast_to "spread" (%9) {shape=[4, 48, 8, 8]} on=cpu[1]{0.0}
%11:f32[4, 48, 8, 8] = conv "f" (%10, %7) ATTRS on=cpu[1]{0.0}
)"),
                          {{"ATTRS", kAttrs}, {"cpu[1]{0.0}", "card[2]{0.0 0.1}"}, {"\n\n", "\n"}});
  const std::string blocked = LaidOut(text, options);
  for (const char* line : {
           "= transpose \"x.transpose\"",
           ":f32[4, 1, 8, 8, 32] = conv \"a\" (%",
           "{blocked_inputs=[0] blocked_outputs=[0] channel_block=-1 dilations",
           ":f32[4, 1, 8, 8, 32] = relu \"b\"",
           ":f32[4, 1, 8, 8, 48] = conv \"c\"",
           ":f32[4, 3072] = reshape \"d\"",
           ":f32[4, 1, 1, 1, 48] = reduce_mean \"mean\"",
           ":f32[4, 1, 8, 8, 48] = broadcast_to \"spread\" (%9) {shape=[4, 1, 8, 8, 48]}",
           ":f32[4, 1, 8, 8, 48] = conv \"f\" (%10, %7)",
       }) {
    EXPECT_NE(blocked.find(line), std::string::npos) << line << blocked;
  }
  EXPECT_EQ(blocked.find("winograd"), std::string::npos) << blocked;
  // Nor if weights are to be split.
  std::string split = text;
  const std::string weights = "shape=[48, 48, 3, 3]} on=card[2]{0.0 0.1}";
  split.replace(split.find(weights), weights.size(), weights + " hint=(S(0))");
  EXPECT_EQ(LaidOut(split, options).find("channel_block"), std::string::npos);
  // Beside others, whose layouts differ, there are no such blocks.
  std::string mixed = text;
  mixed.replace(mixed.find("card[2]{0.0 0.1}"), 16, "cpu[1]{0.0}");
  EXPECT_EQ(LaidOut(mixed, options).find("channel_block"), std::string::npos);
}

TEST(ChannelLayout, AllowsWinogradForWindowsOfThree) {
  const std::string text = Chain("cpu[1]{0.0}");
  const auto count = [](const std::string& where) {
    int found = 0;
    for (size_t at = 0; (at = where.find("winograd=true", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count(LaidOut(text)), 2);
  EXPECT_EQ(count(LaidOut(text, {.winograd = false})), 0);
  const std::string narrow = absl::StrReplaceAll(text, {{"[32, 3, 3, 3]", "[32, 3, 3, 2]"},
                                                        {"[4, 32, 8, 8]", "[4, 32, 8, 9]"},
                                                        {"[4, 48, 8, 8]", "[4, 48, 8, 9]"},
                                                        {"[4, 3072]", "[4, 3456]"}});
  EXPECT_EQ(count(LaidOut(narrow)), 1) << LaidOut(narrow);
}

// Every row is of an operator that there is, with samples whose operands all come in blocks that
// can.
TEST(ChannelLayout, TableIsOfOperatorsThatThereAre) {
  const OpRegistry cpu = WithChannelLayouts(Registry());
  for (const ChannelLayout& layout : ChannelLayouts()) {
    const OpDef* plain = Registry().Find(layout.op);
    ASSERT_NE(plain, nullptr) << layout.op;
    const size_t more = cpu.Find(layout.op)->samples().size() - plain->samples().size();
    EXPECT_EQ(more, 3 * layout.samples.size()) << layout.op << ", blocks of 8, 16, all channels";
    EXPECT_GT(more, 0u) << layout.op;
    for (size_t i = plain->samples().size(); i < cpu.Find(layout.op)->samples().size(); ++i) {
      EXPECT_TRUE(HasChannelBlocks(cpu.Find(layout.op)->samples()[i].attrs)) << layout.op;
    }
  }
}

// Parts of channels are whole blocks, of equal number.
TEST(ChannelLayout, SplitsWholeBlocks) {
  const OpRegistry cpu = WithChannelLayouts(Registry());
  const OpDef& norm = *cpu.Find("batch_norm");
  const std::vector<TensorType> inputs = {{DType::kF32, {4, 4, 8, 8, 16}},
                                          {DType::kF32, {64}},
                                          {DType::kF32, {64}},
                                          {DType::kF32, {64}},
                                          {DType::kF32, {64}}};
  const Attrs attrs = {{"blocked_inputs", std::vector<int64_t>{0}},
                       {"blocked_outputs", std::vector<int64_t>{0}},
                       {"channel_block", kWideBlock},
                       {"epsilon", 1e-3},
                       {"training", true}};
  const auto outputs = norm.InferTypes({.attrs = attrs, .inputs = inputs, .outputs = {}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  const OpContext context = {.attrs = attrs, .inputs = inputs, .outputs = *outputs};
  const auto has = [&](int64_t parts) {
    for (const SbpSignature& signature : norm.LegalSignatures(context, parts)) {
      if (signature.outputs[0] == sbp::S(1)) return true;
    }
    return false;
  };
  EXPECT_TRUE(has(2));
  EXPECT_FALSE(has(3));
}

TEST(ChannelLayout, WrongListsAreErrors) {
  const OpRegistry cpu = WithChannelLayouts(Registry());
  const OpDef& moment = *cpu.Find("batch_moment");
  const std::vector<TensorType> inputs = {{DType::kF32, {4, 2, 8, 16}}, {DType::kF32, {32}}};
  const auto infer = [&](std::vector<int64_t> listed, int64_t block = kWideBlock) {
    Attrs attrs = {{"blocked_inputs", std::move(listed)}};
    if (block != 0) attrs.Set("channel_block", block);
    return moment.InferTypes({.attrs = attrs, .inputs = inputs, .outputs = {}}).status();
  };
  EXPECT_TRUE(infer({0}).ok()) << infer({0}).message();
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{1}, {0, 0}, {-1}, {7}, {int64_t{1} << 40}}) {
    EXPECT_FALSE(infer(wrong).ok());
  }
  for (const int64_t block : {-16, 0, 4, 8, 32}) {
    EXPECT_FALSE(infer({0}, block).ok()) << block;
  }
}

}  // namespace
}  // namespace braid::compiler
