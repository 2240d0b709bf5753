#include "actor/message_bus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

std::string Name(const ActorSpec& spec) {
  return absl::StrFormat("'%s' (%s)", spec.name, ToString(spec.id));
}

}  // namespace

MessageBus::MessageBus(uint16_t node, RemoteSender* remote) : node_(node), remote_(remote) {}

void MessageBus::AddThread(ActorThread* thread) {
  const size_t number = thread->number();
  if (threads_.size() <= number) threads_.resize(number + 1, nullptr);
  CHECK(threads_[number] == nullptr) << "node " << node_ << " has two threads " << number;
  threads_[number] = thread;
}

Actor* MessageBus::Find(const ActorId& id) const {
  if (id.thread >= threads_.size() || threads_[id.thread] == nullptr) return nullptr;
  return threads_[id.thread]->FindActor(id.task);
}

// Messages from other nodes that the thread may have unread at a time, as far as these keep to
// their credits: one for each slot of an edge. And one that gives it a Run, and one that ends it.
size_t MessageBus::MailsFromOthers(const ActorThread& thread) const {
  size_t mails = 2;
  for (const auto& actor : thread.actors()) {
    for (const InputSpec& input : actor->spec().inputs) {
      if (input.producer.node != node_) mails += input.slots;
    }
    for (const OutputSpec& output : actor->spec().outputs) {
      for (const ActorId& consumer : output.consumers) {
        if (consumer.node != node_) mails += output.slots;
      }
    }
  }
  return mails;
}

absl::Status MessageBus::Start() {
  for (const ActorThread* thread : threads_) {
    if (thread == nullptr) continue;
    for (const auto& actor : thread->actors()) {
      for (uint32_t port = 0; port < actor->spec().inputs.size(); ++port) {
        BRAID_RETURN_IF_ERROR(ConnectInput(*actor, port));
      }
      for (uint32_t port = 0; port < actor->spec().outputs.size(); ++port) {
        BRAID_RETURN_IF_ERROR(ConnectOutput(*actor, port));
      }
    }
  }
  for (ActorThread* thread : threads_) {
    if (thread != nullptr) thread->Start(MailsFromOthers(*thread));
  }
  return absl::OkStatus();
}

// The consumer's end: it has to know its producer's output, to which it sends kAck.
absl::Status MessageBus::ConnectInput(Actor& actor, uint32_t port) {
  const ActorSpec& spec = actor.spec();
  const InputSpec& input = spec.inputs[port];
  if (input.producer.node != node_) {
    if (remote_ != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("actor %s reads register %d from %s, but node %d has no links", Name(spec),
                        input.reg, ToString(input.producer), node_));
  }
  BRAID_ASSIGN_OR_RETURN(OtherEnd producer, FindProducer(actor, input));
  MakeMails(actor, input.slots,
            {.src = spec.id, .dst = input.producer, .reg = input.reg, .kind = MessageKind::kAck},
            producer);
  actor.ConnectInput(port, producer);
  return absl::OkStatus();
}

absl::StatusOr<OtherEnd> MessageBus::FindProducer(const Actor& actor,
                                                  const InputSpec& input) const {
  const ActorSpec& spec = actor.spec();
  Actor* const producer = Find(input.producer);
  if (producer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor %s reads register %d from %s, which does not exist", Name(spec),
                        input.reg, ToString(input.producer)));
  }
  const std::vector<OutputSpec>& outputs = producer->spec().outputs;
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].reg != input.reg) continue;
    if (outputs[i].slots != input.slots || outputs[i].initial_tokens != input.initial_tokens) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "register %d has %d slots and %d initial tokens at its producer %s, %d and %d at its "
          "consumer %s",
          input.reg, outputs[i].slots, outputs[i].initial_tokens, Name(producer->spec()),
          input.slots, input.initial_tokens, Name(spec)));
    }
    const auto& consumers = outputs[i].consumers;
    const auto reader = std::find(consumers.begin(), consumers.end(), spec.id);
    if (reader == consumers.end()) break;
    return OtherEnd{.id = input.producer,
                    .actor = producer,
                    .port = i,
                    .reader = static_cast<uint32_t>(reader - consumers.begin())};
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("actor %s reads register %d, but %s has no such output for it", Name(spec),
                      input.reg, Name(producer->spec())));
}

// The producer's end: it has to know each consumer's input, to which it sends kReady.
absl::Status MessageBus::ConnectOutput(Actor& actor, uint32_t port) {
  const ActorSpec& spec = actor.spec();
  const OutputSpec& output = spec.outputs[port];
  for (uint32_t reader = 0; reader < output.consumers.size(); ++reader) {
    const ActorId& id = output.consumers[reader];
    if (id.node != node_) {
      if (remote_ != nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("actor %s writes register %d for %s, but node %d has no links",
                          Name(spec), output.reg, ToString(id), node_));
    }
    BRAID_ASSIGN_OR_RETURN(OtherEnd consumer, FindConsumer(actor, output, id));
    MakeMails(actor, output.slots,
              {.src = spec.id, .dst = id, .reg = output.reg, .kind = MessageKind::kReady},
              consumer);
    actor.ConnectOutput(port, reader, consumer);
  }
  return absl::OkStatus();
}

absl::StatusOr<OtherEnd> MessageBus::FindConsumer(const Actor& actor, const OutputSpec& output,
                                                  const ActorId& id) const {
  const ActorSpec& spec = actor.spec();
  Actor* const consumer = Find(id);
  if (consumer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor %s writes register %d for %s, which does not exist", Name(spec),
                        output.reg, ToString(id)));
  }
  const std::vector<InputSpec>& inputs = consumer->spec().inputs;
  const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const InputSpec& input) {
    return input.reg == output.reg && input.producer == spec.id;
  });
  if (input == inputs.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor %s writes register %d for %s, which does not read it from there",
                        Name(spec), output.reg, Name(consumer->spec())));
  }
  return OtherEnd{
      .id = id, .actor = consumer, .port = static_cast<uint32_t>(input - inputs.begin())};
}

void MessageBus::MakeMails(const Actor& actor, uint32_t slots, const Message& message,
                           OtherEnd& end) {
  if (&end.actor->core() == &actor.core()) return;
  Actor* const target = std::exchange(end.actor, nullptr);
  mails_.push_back(std::make_unique<Mail[]>(slots));
  end.inbox = &target->core();
  end.mails = mails_.back().get();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    Mail& mail = end.mails[slot];
    mail.target = target;
    mail.port = end.port;
    mail.reader = end.reader;
    mail.message = message;
    mail.message.slot = slot;
  }
}

absl::Status MessageBus::Deliver(const Message& message) {
  const size_t number = message.dst.thread;
  // Edges inside the node have preallocated mails that only their own two ends may move.
  if (message.src.node == node_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("message refused (%s): it comes from outside but claims to be of node %d",
                        ToString(message), node_));
  }
  if (message.dst.node != node_ || number >= threads_.size() || threads_[number] == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("message refused (%s): node %d has no thread %s", ToString(message), node_,
                        ToString(ActorId{message.dst.node, message.dst.thread, kWholeThread})));
  }
  threads_[number]->Receive(message);
  return absl::OkStatus();
}

}  // namespace braid
