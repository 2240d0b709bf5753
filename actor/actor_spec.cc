#include "actor/actor_spec.h"

#include <string_view>
#include <unordered_set>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Of an InputSpec or an OutputSpec.
template <typename End>
absl::Status CheckEnd(const ActorSpec& spec, std::string_view side, const End& end) {
  if (end.lane != kNoLane && (end.lane < 0 || end.lane >= int64_t{spec.lanes})) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor '%s' (%s): %s register %d is of lane %d; it has %d lanes", spec.name,
                        ToString(spec.id), side, end.reg, end.lane, spec.lanes));
  }
  if (end.slots >= 1 && end.period >= 1 && end.initial_tokens <= end.slots) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "actor '%s' (%s): %s register %d has %d slots, period %d, %d initial tokens; "
      "slots and period are at least 1, tokens at most the slots",
      spec.name, ToString(spec.id), side, end.reg, end.slots, end.period, end.initial_tokens));
}

}  // namespace

absl::Status CheckSpec(const ActorSpec& spec) {
  const auto error = [&spec](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor '%s' (%s): %s", spec.name, ToString(spec.id), what));
  };
  if (spec.acts_per_step == 0) return error("it acts 0 times a step");
  std::unordered_set<int32_t> lanes;
  for (const InputSpec& input : spec.inputs) {
    if (input.lane != kNoLane) lanes.insert(input.lane);
  }
  if (lanes.size() < spec.lanes) {
    return error(absl::StrFormat("%d of its %d lanes have an input; each is to have one",
                                 lanes.size(), spec.lanes));
  }
  std::unordered_set<RegisterId> read;
  for (const InputSpec& input : spec.inputs) {
    BRAID_RETURN_IF_ERROR(CheckEnd(spec, "input", input));
    if (!read.insert(input.reg).second) {
      return error(absl::StrFormat("input register %d is listed twice", input.reg));
    }
  }
  std::unordered_set<RegisterId> written;
  for (const OutputSpec& output : spec.outputs) {
    BRAID_RETURN_IF_ERROR(CheckEnd(spec, "output", output));
    if (!written.insert(output.reg).second) {
      return error(absl::StrFormat("output register %d is listed twice", output.reg));
    }
    std::unordered_set<ActorId> consumers;
    for (const ActorId& consumer : output.consumers) {
      if (!consumers.insert(consumer).second) {
        return error(absl::StrFormat("output register %d lists consumer %s twice", output.reg,
                                     ToString(consumer)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace braid
