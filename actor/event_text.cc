// The events of an ActorThread as text. What an act told others follows from its number: the pieces
// of a register are counted, and slots go round in order.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "actor/actor_thread.h"

namespace braid {
namespace {

// What the actor sent when act `index` had ended.
std::string SentText(const ActorSpec& spec, int64_t index) {
  std::string text;
  for (const InputSpec& input : spec.inputs) {
    if ((index + 1) % input.period != 0) continue;
    const int64_t piece = (index + 1) / input.period - 1;
    absl::StrAppendFormat(&text, "; kAck register %d slot %d piece %d to %s", input.reg,
                          piece % input.slots, piece, ToString(input.producer));
  }
  for (const OutputSpec& output : spec.outputs) {
    if ((index + 1) % output.period != 0 || output.consumers.empty()) continue;
    const int64_t piece = output.initial_tokens + (index + 1) / output.period - 1;
    absl::StrAppendFormat(&text, "; kReady register %d slot %d piece %d to", output.reg,
                          piece % output.slots, piece);
    for (const ActorId& consumer : output.consumers) text += " " + ToString(consumer);
  }
  return text;
}

std::string ReceivedText(const ActorSpec& spec, const ActorEvent& event) {
  if (event.kind == ActorEvent::Kind::kReady) {
    if (event.port >= spec.inputs.size()) return "got kReady";
    const InputSpec& input = spec.inputs[event.port];
    return absl::StrFormat("got kReady register %d slot %d piece %d from %s", input.reg, event.slot,
                           event.piece, ToString(input.producer));
  }
  if (event.port >= spec.outputs.size()) return "got kAck";
  return absl::StrFormat("got kAck register %d slot %d piece %d", spec.outputs[event.port].reg,
                         event.slot, event.piece);
}

}  // namespace

std::vector<std::string> ActorThread::DescribeEvents(Nanoseconds now) const {
  const std::vector<ActorEvent> events = observer_.events().Read();
  // Of each actor, the kind of its next event but messages, seen from the end.
  constexpr int kNoKind = -1;
  std::vector<int> next(actors_.size(), kNoKind);
  std::vector<std::string> lines(events.size());
  for (size_t i = events.size(); i-- > 0;) {
    const ActorEvent& event = events[i];
    if (event.actor >= actors_.size()) continue;
    const ActorSpec& spec = actors_[event.actor]->spec();
    std::string what;
    switch (event.kind) {
      case ActorEvent::Kind::kAct: {
        what = absl::StrFormat("act %d began", event.piece);
        const int after = next[event.actor];
        const bool has_own_end = after == static_cast<int>(ActorEvent::Kind::kGoesOn) ||
                                 after == static_cast<int>(ActorEvent::Kind::kEnd);
        // The newest may be inside its start.
        if (!has_own_end && i + 1 < events.size()) what += ", ended" + SentText(spec, event.piece);
        break;
      }
      case ActorEvent::Kind::kGoesOn:
        what = absl::StrFormat("act %d goes on", event.piece);
        break;
      case ActorEvent::Kind::kEnd:
        what = absl::StrFormat("act %d ended", event.piece) + SentText(spec, event.piece);
        break;
      case ActorEvent::Kind::kReady:
      case ActorEvent::Kind::kAck:
        what = ReceivedText(spec, event);
        break;
    }
    if (event.kind <= ActorEvent::Kind::kEnd) next[event.actor] = static_cast<int>(event.kind);
    lines[i] =
        absl::StrFormat("%12.6f s  %s (%s) %s",
                        -static_cast<double>(std::max<Nanoseconds>(now - event.time, 0)) / kSecond,
                        spec.name, ToString(spec.id), what);
  }
  std::erase(lines, std::string());
  return lines;
}

}  // namespace braid
