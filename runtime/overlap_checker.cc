#include "runtime/overlap_checker.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

constexpr uint64_t kBlock = kArenaAlignment;  // of registers

}  // namespace

ShadowMemory::Blocks ShadowMemory::BlocksOf(const std::byte* from, uint64_t bytes) const {
  for (size_t i = 0; i < 2 * devices_->size(); ++i) {
    const std::span<std::byte> arena =
        (*devices_)[i / 2]->arena(i % 2 == 0 ? MemoryKind::kOwn : MemoryKind::kPinned);
    if (from >= arena.data() && from + bytes <= arena.data() + arena.size()) {
      const auto offset = static_cast<uint64_t>(from - arena.data());
      return {i, offset / kBlock, (offset + bytes + kBlock - 1) / kBlock};
    }
  }
  LOG(FATAL) << bytes << " bytes of a register lie in no arena";
}

void ShadowMemory::Write(RegisterId reg, const std::byte* from, uint64_t bytes) {
  const Blocks blocks = BlocksOf(from, bytes);
  if (writers_.size() <= blocks.arena) writers_.resize(blocks.arena + 1);
  std::vector<uint64_t>& writers = writers_[blocks.arena];
  if (writers.size() < blocks.end) writers.resize(blocks.end, 0);
  for (uint64_t i = blocks.first; i < blocks.end; ++i) writers[i] = uint64_t{reg} + 1;
}

absl::Status ShadowMemory::Check(RegisterId reg, const std::byte* from, uint64_t bytes) const {
  const Blocks blocks = BlocksOf(from, bytes);
  for (uint64_t i = blocks.first; i < blocks.end; ++i) {
    const uint64_t writer = blocks.arena < writers_.size() && i < writers_[blocks.arena].size()
                                ? writers_[blocks.arena][i]
                                : 0;
    if (writer != uint64_t{reg} + 1) {
      return absl::InternalError(absl::StrFormat(
          "byte overlap: register %d is read, but %s wrote byte %d of device %d's arena%s last",
          reg, writer == 0 ? "nobody" : absl::StrFormat("register %d", writer - 1), i * kBlock,
          blocks.arena / 2, blocks.arena % 2 == 0 ? "" : " in host memory"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckedAction::Check(const std::vector<End>& ends, const Act& act,
                                  std::span<const uint32_t> slots) const {
  for (size_t i = 0; i < ends.size(); ++i) {
    const End& end = ends[i];
    if (!end.IsUsed(act.lane)) continue;
    absl::Status status = shadow_->Check(end.reg, end.memory.At(slots[i]), end.memory.bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// What worked in place lost its input to its output.
absl::Status CheckedAction::CheckDone() const {
  std::vector<End> inputs = inputs_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (inputs[i].memory.base != nullptr && outputs_[o].memory.base != nullptr &&
          inputs[i].memory.At(act_.input_slots[i]) == outputs_[o].memory.At(act_.output_slots[o])) {
        inputs[i].memory.base = nullptr;
        break;
      }
    }
  }
  absl::Status status = Check(inputs, act_, act_.input_slots);
  status.Update(Check(outputs_, act_, act_.output_slots));
  return status;
}

void CheckedAction::Start(const Act& act, ActDone done) {
  act_ = act;
  done_ = done;
  if (absl::Status status = Check(inputs_, act, act.input_slots); !status.ok()) {
    return done(std::move(status));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const End& end = outputs_[i];
    if (end.IsUsed(act.lane)) {
      shadow_->Write(end.reg, end.memory.At(act.output_slots[i]), end.memory.bytes);
    }
  }
  action_->Start(act, ActDone(this, act.index));
}

void CheckedAction::OnDone(Receiver* self, int64_t, absl::Status status) {
  const CheckedAction& checked = *static_cast<CheckedAction*>(self);
  status.Update(checked.CheckDone());
  const ActDone outer = checked.done_;  // the next act may start within the call
  outer(std::move(status));
}

}  // namespace braid
